"""The requests of this engine, as SGLang knows them and as policies see them, side by side.

SGLang keeps a waiting queue, one running batch and one half-prefilled request. Co-serving needs
more states than that, so this table owns every request that holds a slot::

    waiting_queue ──start──► holding: prefilling | decoding | restoring ──forget──► gone
          ▲                       │
          └───────retract─────────┘

Being in the running step or parked makes no difference here: a parked request keeps slot and KV.
``HoldingView`` shows the holding rows to those parts of SGLang that expect a running batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from engine_adapter.scheduling.request import Phase, RequestRow
from engine_adapter.scheduling.roster import Roster


@dataclass(slots=True, eq=False)
class LiveRow:
    """One live request.

    Invariant while it holds a slot: ``row.computed_tokens`` equals SGLang's
    ``req.kv_committed_len`` once the step that is being launched has been composed.

    Attributes:
        req: SGLang's request object.
        row: What policies see.
        pending: Launched steps of this row whose result SGLang has not processed yet.
        is_online: Whether the row is latency-bound.
        last_token_at_s: When it last got a token, monotonic clock; None: not yet.
        had_tokens: KV length at its longest before a retract: below it nothing is computed first.
    """

    req: Any
    row: RequestRow
    pending: int = 0
    is_online: bool = field(init=False)
    last_token_at_s: float | None = None
    had_tokens: int = 0

    def __post_init__(self) -> None:
        """The class of a request never changes."""
        self.is_online = self.row.is_online

    @property
    def rid(self) -> str:
        """Engine-wide request id."""
        return self.row.rid

    def launched(self) -> None:
        """A step with this row was launched."""
        self.pending += 1
        self.row.in_flight = True

    def processed(self) -> None:
        """The result of a step with this row was processed."""
        self.pending -= 1
        self.row.in_flight = self.pending > 0


class LiveRows:
    """All live rows by id; keeps the roster and SGLang's requests in step."""

    def __init__(self) -> None:
        """Start with no rows."""
        self.roster = Roster()
        self._rows: dict[str, LiveRow] = {}
        self._holding: dict[str, LiveRow] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, rid: object) -> bool:
        return rid in self._rows

    def __getitem__(self, rid: str) -> LiveRow:
        return self._rows[rid]

    def get(self, rid: str) -> LiveRow | None:
        """The row, or None if it is not live."""
        return self._rows.get(rid)

    def __iter__(self) -> Iterator[LiveRow]:
        return iter(self._rows.values())

    @property
    def by_id(self) -> Mapping[str, LiveRow]:
        """All live rows by id."""
        return self._rows

    @property
    def holding(self) -> dict[str, LiveRow]:
        """Rows that hold a request slot, in the order they got it."""
        return self._holding

    def add(self, live: LiveRow) -> None:
        """Take in a request that entered the waiting queue for the first time."""
        self.roster.add(live.row)
        self._rows[live.rid] = live

    def start(self, live: LiveRow, phase: Phase) -> None:
        """The row has been given a slot."""
        self.roster.start(live.rid, phase)
        self._holding[live.rid] = live

    def retract(self, live: LiveRow) -> None:
        """The row gave its slot back and waits again."""
        self.roster.retract(live.rid)
        del self._holding[live.rid]

    def undo_start(self, live: LiveRow, phase: Phase) -> None:
        """A stopped step gave the row its slot; it waits again in the phase it had."""
        self.roster.undo_start(live.rid, phase)
        del self._holding[live.rid]

    def forget(self, rid: str) -> LiveRow | None:
        """The request is over; None if it was not live."""
        live = self._rows.pop(rid, None)
        if live is not None:
            self._holding.pop(rid, None)
            self.roster.finish(rid)
        return live


class HoldingView:
    """Every row that holds a slot, in the shape of SGLang's running batch.

    Memory checks, load reports, aborts and the idle test of SGLang read ``reqs`` of the running
    batch; with this view they see parked and half-prefilled rows too.
    """

    def __init__(self, rows: LiveRows) -> None:
        """Look at ``rows``."""
        self._rows = rows
        self.batch_is_full = False
        self.is_prefill_only = False
        self.return_logprob = False

    @property
    def reqs(self) -> list[Any]:
        """SGLang's request objects."""
        return [live.req for live in self._rows.holding.values()]

    def is_empty(self) -> bool:
        """Whether no row holds a slot."""
        return not self._rows.holding

    def batch_size(self) -> int:
        """Number of rows that hold a slot."""
        return len(self._rows.holding)


class PendingPrefill:
    """All half-prefilled rows as one, for SGLang's count of tokens still to be prefilled."""

    def __init__(self, rows: LiveRows) -> None:
        """Look at ``rows``."""
        self._rows = rows

    prefix_indices: tuple[()] = ()

    @property
    def seqlen(self) -> int:
        """Prompt tokens still to be computed by rows that hold a slot."""
        return sum(
            live.row.remaining_tokens
            for live in self._rows.holding.values()
            if live.row.phase is Phase.PREFILL
        )
