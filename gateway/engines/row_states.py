"""What the rows of a batch do at the engines, as far as the engines say it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from api.batch_shapes import RowsAtEngines
from engine_adapter.client.pool import Member


@dataclass(frozen=True)
class Reported:
    """What engines said of the rows of one batch, up to five seconds ago."""

    decoding: int = 0
    parked: int = 0
    queued: int = 0

    def fitted(self, num_rows: int) -> RowsAtEngines:
        """The same over as many rows as the database knows there: those that came since queue."""
        decoding = min(self.decoding, num_rows)
        parked = min(self.parked, num_rows - decoding)
        queued = num_rows - decoding - parked
        return RowsAtEngines(rows=num_rows, decoding=decoding, parked=parked, queued=queued)


def at_engines(members: Sequence[Member], batch_id: str) -> Reported | None:
    """Where a batch's rows are, over all engines; none where no engine says such things."""
    said = [
        member.facts.reported("by_batch")
        for member in members
        if member.up and member.facts is not None
    ]
    states = [one for one in said if isinstance(one, Mapping)]
    if not states:
        return None
    found = [one[batch_id] for one in states if _is_count(one.get(batch_id))]
    return Reported(*(sum(counts) for counts in zip(*found, strict=True)))


def _is_count(counts: object) -> bool:
    return (
        isinstance(counts, list)
        and len(counts) == 3
        and all(isinstance(one, int) for one in counts)
    )
