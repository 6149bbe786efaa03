"""The book of live rows that a port keeps and a snapshot shows.

Every change touches one row, so a snapshot costs the same with ten waiting requests and ten
thousand::

    add ──► waiting ──start──► running ──finish──► (gone)
               ▲                  │
               └─────retract──────┘
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Sequence
from itertools import islice

from engine_adapter.scheduling.request import Phase, RequestRow, running_key, waiting_key
from engine_adapter.scheduling.snapshot import EngineLimits, ReadyRows, Resources, Snapshot
from engine_adapter.scheduling.targets import Slo

Key = tuple[float, ...]
DECODE = Phase.DECODE


class SortedRows:
    """Rows in the order of the keys they were filed under.

    Kept in order row by row: sorting hundreds of rows before each step would cost more than
    planning it. The key a row was filed under finds it again whatever changed since.
    """

    def __init__(self) -> None:
        """Start empty."""
        self._rows: list[RequestRow] = []
        self._keys: list[Key] = []
        self._key_of: dict[str, Key] = {}

    def add(self, row: RequestRow, key: Key) -> None:
        """File a row; no two keys are equal."""
        place = bisect_left(self._keys, key)
        self._keys.insert(place, key)
        self._rows.insert(place, row)
        self._key_of[row.rid] = key

    def remove(self, row: RequestRow) -> None:
        """Take a filed row out."""
        place = bisect_left(self._keys, self._key_of.pop(row.rid))
        del self._keys[place]
        del self._rows[place]

    @property
    def rows(self) -> Sequence[RequestRow]:
        """A live view, first to last."""
        return self._rows


class Roster:
    """Live rows, split by whether they hold a slot and by class."""

    def __init__(self) -> None:
        """Start with no rows."""
        self.rows: dict[str, RequestRow] = {}
        self._running: dict[str, RequestRow] = {}
        self._online_running: dict[str, RequestRow] = {}
        self._offline_running = SortedRows()
        self._online_waiting: dict[str, RequestRow] = {}
        self._offline_waiting = SortedRows()
        self._retracted: set[str] = set()
        self._version = 0
        self._ready: tuple[ReadyRows | None, ReadyRows | None] = (None, None)
        self._next_sequence = 0

    def add(self, row: RequestRow) -> None:
        """Take in a new row that holds no slot.

        Raises:
            ValueError: If the id is already live or the row claims a slot.
        """
        if row.rid in self.rows:
            raise ValueError(f"request {row.rid} is already live")
        if row.holds_slot:
            raise ValueError(f"request {row.rid} cannot start in phase {row.phase.name}")
        row.sequence = self._next_sequence
        self._next_sequence += 1
        self.rows[row.rid] = row
        self._queue(row)

    def start(self, rid: str, phase: Phase = Phase.PREFILL) -> RequestRow:
        """Give a waiting request a slot; it begins in ``phase``."""
        row = self.rows[rid]
        if row.holds_slot:
            raise ValueError(f"request {rid} already holds a slot")
        self._unqueue(row)
        self._retracted.discard(rid)
        row.phase = phase
        self._running[rid] = row
        if row.is_online:
            self._online_running[rid] = row
        else:
            self._offline_running.add(row, running_key(row))
        return row

    def retract(self, rid: str) -> RequestRow:
        """Take the slot and the device pages away; the row waits again, ahead of newer ones."""
        return self._give_up(rid, Phase.RETRACTED)

    def undo_start(self, rid: str, phase: Phase) -> RequestRow:
        """Take back the slot that a stopped step gave the row; it waits in the phase it had."""
        return self._give_up(rid, phase)

    def _give_up(self, rid: str, phase: Phase) -> RequestRow:
        row = self.rows[rid]
        self._leave(row)
        row.phase = phase
        if phase is Phase.RETRACTED:
            self._retracted.add(rid)
        row.computed_tokens = 0
        row.cached_tokens = 0
        row.device_pages = 0
        row.shared = ()
        row.prefetched_pages = 0
        self._queue(row)
        return row

    def finish(self, rid: str) -> RequestRow | None:
        """Forget a row that is done or aborted; None if it was not live."""
        row = self.rows.pop(rid, None)
        if row is None:
            return None
        self._retracted.discard(rid)
        if rid in self._running:
            self._leave(row)
        else:
            self._unqueue(row)
        return row

    def snapshot(
        self,
        step_id: int,
        now_s: float,
        slo: Slo,
        resources: Resources,
        limits: EngineLimits,
        overhead_s: float = 0.0,
    ) -> Snapshot:
        """A view of the rows as they stand; only those ready for a token are looked at."""
        online, offline = self._online_running.values(), self._offline_running.rows
        page_tokens = resources.page_tokens
        ready = (
            _ready(online, page_tokens, self._ready[0]),
            _ready(offline, page_tokens, self._ready[1]),
        )
        self._ready = ready
        return Snapshot(
            step_id=step_id,
            now_s=now_s,
            slo=slo,
            resources=resources,
            limits=limits,
            rows=self.rows,
            running=self._running.values(),
            online_running=online,
            offline_running=offline,
            online_waiting=self._online_waiting.values(),
            offline_waiting=self._offline_waiting.rows,
            online_ready=ready[0],
            offline_ready=ready[1],
            overhead_s=overhead_s,
            offline_waiting_version=self._version,
        )

    @property
    def online_waiting(self) -> Collection[RequestRow]:
        """Online requests without a slot, in arrival order."""
        return self._online_waiting.values()

    @property
    def num_running(self) -> int:
        """Rows that hold a slot."""
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        """Rows without a slot."""
        return len(self._online_waiting) + len(self._offline_waiting.rows)

    def waiting_like(self, row: RequestRow, most: int) -> list[RequestRow]:
        """The first rows of the same class and batch that have not begun and wait for a slot."""
        queue = self._online_waiting.values() if row.is_online else self._offline_waiting.rows
        like = (
            other
            for other in queue
            if other.phase is Phase.WAITING
            and (other.request_class, other.batch_id) == (row.request_class, row.batch_id)
        )
        return list(islice(like, most))

    @property
    def has_online_running(self) -> bool:
        """Whether an online request holds a slot."""
        return bool(self._online_running)

    @property
    def has_retracted(self) -> bool:
        """Whether a row waits that was retracted."""
        return bool(self._retracted)

    @property
    def num_retracted(self) -> int:
        """Rows that wait and were retracted."""
        return len(self._retracted)

    def _leave(self, row: RequestRow) -> None:
        del self._running[row.rid]
        if row.is_online:
            del self._online_running[row.rid]
        else:
            self._offline_running.remove(row)

    def _queue(self, row: RequestRow) -> None:
        if row.is_online:
            self._online_waiting[row.rid] = row
        else:
            self._offline_waiting.add(row, waiting_key(row))
            self._version += 1

    def _unqueue(self, row: RequestRow) -> None:
        if row.is_online:
            del self._online_waiting[row.rid]
        else:
            self._offline_waiting.remove(row)
            self._version += 1


def _ready(
    running: Collection[RequestRow], page_tokens: int, before: ReadyRows | None
) -> ReadyRows:
    rows = [row for row in running if row.phase is DECODE]
    return ReadyRows(rows, page_tokens, before)
