"""The order of flex and offline rows.

Slot holders: flex before offline, then deadline, then arrival. Waiting rows the same, with two
exceptions: a retracted row comes before a new one of its class, because its KV waits on the host;
and every ``1 / min_share``-th admission goes to the batch that was admitted least recently, so
that a batch with a late deadline still moves. Rows of one batch stay in file order, where they
tend to share a prefix.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from engine_adapter.core.request import Phase, RequestClass, RequestRow
from engine_adapter.core.snapshot import Snapshot


def running_key(row: RequestRow) -> tuple[int, float, int]:
    """Sort key of slot holders, most important first; online rows go by arrival alone."""
    if row.request_class == RequestClass.ONLINE:
        return (0, 0.0, row.sequence)
    return (row.request_class, row.deadline_at_s, row.sequence)


def waiting_key(row: RequestRow) -> tuple[int, bool, float, int]:
    """Sort key of waiting rows, next to be admitted first."""
    return (
        row.request_class,
        row.phase is not Phase.RETRACTED,
        row.deadline_at_s,
        row.sequence,
    )


def flex_room(snapshot: Snapshot, max_share: float) -> int:
    """Flex rows that may still get a slot while offline rows wait for one too."""
    resources = snapshot.resources
    allowed = int(max_share * (resources.total_slots - resources.reserved_slots))
    held = sum(1 for row in snapshot.running if row.request_class == RequestClass.FLEX)
    return max(0, allowed - held)


class OfflineOrder:
    """Order of waiting rows, remembered between steps.

    The queue is sorted only when it changed, so a long queue costs nothing while it stands.

    Args:
        min_share: Share of admissions kept for the batch served least; 0 turns it off.
    """

    def __init__(self, min_share: float) -> None:
        """Start with no admissions counted."""
        self._every = round(1.0 / min_share) if min_share > 0.0 else 0
        self._version = -1
        self._sorted: list[RequestRow] = []
        self._admissions = 0
        self._last_admitted: dict[str, int] = {}

    def waiting(self, snapshot: Snapshot) -> Iterator[RequestRow]:
        """Waiting rows in admission order; stop consuming at the first that does not fit."""
        if snapshot.offline_waiting_version != self._version:
            self._sorted = sorted(snapshot.offline_waiting, key=waiting_key)
            self._version = snapshot.offline_waiting_version
            self._forget_absent(snapshot.offline_waiting)
        rows = self._sorted
        if self._every and rows and (self._admissions + 1) % self._every == 0:
            starved = self._starved(rows)
            if starved is not None:
                yield starved
                for row in rows:
                    if row is not starved:
                        yield row
                return
        yield from rows

    def admitted(self, row: RequestRow) -> None:
        """Count an admission."""
        self._admissions += 1
        self._last_admitted[row.batch_id] = self._admissions

    def _starved(self, rows: list[RequestRow]) -> RequestRow | None:
        """First row of the batch admitted least recently; None when there is one batch only."""
        first: dict[str, RequestRow] = {}
        for row in rows:
            if row.phase is not Phase.RETRACTED:
                first.setdefault(row.batch_id, row)
        if len(first) < 2:
            return None
        last = self._last_admitted
        return min(first.values(), key=lambda row: (last.get(row.batch_id, 0), row.sequence))

    def _forget_absent(self, rows: Iterable[RequestRow]) -> None:
        if len(self._last_admitted) > 64:
            live = {row.batch_id for row in rows}
            self._last_admitted = {b: n for b, n in self._last_admitted.items() if b in live}
