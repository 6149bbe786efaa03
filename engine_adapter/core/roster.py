"""The book of live rows that a port keeps and a snapshot shows.

Every change touches one row, so a snapshot costs the same with ten waiting rows and ten thousand::

    add ──► waiting ──start──► running ──finish──► (gone)
               ▲                  │
               └─────retract──────┘
"""

from __future__ import annotations

from bisect import bisect_left

from engine_adapter.core.request import Phase, RequestRow, waiting_key
from engine_adapter.core.slo import Slo
from engine_adapter.core.snapshot import EngineLimits, Resources, Snapshot

WaitingKey = tuple[int, bool, float, int]


class Roster:
    """Live rows, split by whether they hold a slot and by class."""

    def __init__(self) -> None:
        """Start with no rows."""
        self.rows: dict[str, RequestRow] = {}
        self._running: dict[str, RequestRow] = {}
        self._online_waiting: dict[str, RequestRow] = {}
        # Kept in order row by row: sorting a long queue before each step would cost more than
        # planning it. The key a row was filed under finds it again whatever changed since.
        self._offline_waiting: list[RequestRow] = []
        self._offline_keys: list[WaitingKey] = []
        self._key_of: dict[str, WaitingKey] = {}
        self._version = 0
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
        """Give a waiting row a slot; it begins in ``phase``."""
        row = self.rows[rid]
        if row.holds_slot:
            raise ValueError(f"request {rid} already holds a slot")
        self._unqueue(row)
        row.phase = phase
        self._running[rid] = row
        return row

    def retract(self, rid: str) -> RequestRow:
        """Take the slot and the device pages away; the row waits again, ahead of newer ones."""
        row = self._running.pop(rid)
        row.phase = Phase.RETRACTED
        row.computed_tokens = 0
        row.cached_tokens = 0
        row.device_pages = 0
        row.shared_pages = 0
        row.prefetched_pages = 0
        self._queue(row)
        return row

    def finish(self, rid: str) -> RequestRow | None:
        """Forget a row that is done or aborted; None if it was not live."""
        row = self.rows.pop(rid, None)
        if row is None:
            return None
        if self._running.pop(rid, None) is None:
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
        """A view of the rows as they stand; nothing is copied."""
        return Snapshot(
            step_id=step_id,
            now_s=now_s,
            slo=slo,
            resources=resources,
            limits=limits,
            rows=self.rows,
            running=self._running.values(),
            online_waiting=self._online_waiting.values(),
            offline_waiting=self._offline_waiting,
            overhead_s=overhead_s,
            offline_waiting_version=self._version,
        )

    @property
    def num_running(self) -> int:
        """Rows that hold a slot."""
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        """Rows without a slot."""
        return len(self._online_waiting) + len(self._offline_waiting)

    def _queue(self, row: RequestRow) -> None:
        if row.is_online:
            self._online_waiting[row.rid] = row
        else:
            key = waiting_key(row)
            place = bisect_left(self._offline_keys, key)
            self._offline_keys.insert(place, key)
            self._offline_waiting.insert(place, row)
            self._key_of[row.rid] = key
            self._version += 1

    def _unqueue(self, row: RequestRow) -> None:
        if row.is_online:
            del self._online_waiting[row.rid]
        else:
            place = bisect_left(self._offline_keys, self._key_of.pop(row.rid))
            del self._offline_keys[place]
            del self._offline_waiting[place]
            self._version += 1
