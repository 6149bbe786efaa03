"""The order of flex and offline rows.

Slot holders: flex before offline, then deadline, then arrival. Waiting rows come sorted in the
snapshot: the same order, but a retracted row before a new one of its class. On top of that every
``1 / min_share``-th admission goes to the batch that was admitted least recently, so that a batch
with a late deadline still moves. Rows of one batch stay in file order, where they tend to share a
prefix.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Container, Iterable, Iterator, Sequence

from engine_adapter.core.request import Phase, RequestClass, RequestRow
from engine_adapter.core.snapshot import Snapshot

# A batch forgotten for its age counts as never admitted, which is nearly the same.
MAX_REMEMBERED = 256


def flex_room(snapshot: Snapshot, max_share: float) -> int:
    """Flex rows that may still get a slot while offline rows wait for one too."""
    resources = snapshot.resources
    allowed = int(max_share * (resources.total_slots - resources.reserved_slots))
    # Flex rows come first among them.
    held = bisect_left(
        snapshot.offline_running, RequestClass.OFFLINE, key=lambda row: row.request_class
    )
    return max(0, allowed - held)


class OfflineOrder:
    """Order of admissions, with a share for the batch that would starve.

    Args:
        min_share: Share of admissions kept for the batch served least; 0 turns it off.
    """

    def __init__(self, min_share: float) -> None:
        """Start with no admissions counted."""
        self._every = round(1.0 / min_share) if min_share > 0.0 else 0
        self._admissions = 0
        self._last_admitted: dict[str, int] = {}
        self._starved_for: tuple[int, int] = (-1, -1)
        self._starved_row: RequestRow | None = None

    def waiting(self, snapshot: Snapshot) -> Iterator[RequestRow]:
        """Waiting rows in admission order; stop consuming at the first that does not fit."""
        given: set[str] = set()
        for row in snapshot.offline_waiting:
            # Asked before each row: a step may admit many of them.
            if self._every and (self._admissions + 1) % self._every == 0:
                starved = self._starved(snapshot, given)
                if starved is not None and starved.rid not in given:
                    given.add(starved.rid)
                    yield starved
            if row.rid not in given:
                given.add(row.rid)
                yield row

    def admitted(self, row: RequestRow) -> None:
        """Count an admission."""
        self._admissions += 1
        last = self._last_admitted
        last.pop(row.batch_id, None)
        last[row.batch_id] = self._admissions  # the dictionary stays ordered by recency
        if len(last) > MAX_REMEMBERED:
            del last[next(iter(last))]

    def _starved(self, snapshot: Snapshot, given: Container[str]) -> RequestRow | None:
        """First row of the batch admitted least recently; None when there is one batch only.

        Rows that were given already have had their chance.

        Looked up once per change of the queue: the answer stands while the row waits.
        """
        state = (snapshot.offline_waiting_version, self._admissions)
        if state != self._starved_for:
            self._starved_for = state
            left = (row for row in snapshot.offline_waiting if row.rid not in given)
            self._starved_row = self._find_starved(left)
        return self._starved_row

    def _find_starved(self, rows: Iterable[RequestRow]) -> RequestRow | None:
        first: dict[str, RequestRow] = {}
        for row in rows:
            if row.batch_id not in first and row.phase is not Phase.RETRACTED:
                first[row.batch_id] = row
        if len(first) < 2:
            return None
        last = self._last_admitted
        return min(first.values(), key=lambda row: (last.get(row.batch_id, 0), row.sequence))


def retracted_rows(rows: Sequence[RequestRow]) -> Iterator[RequestRow]:
    """Retracted rows of a waiting queue in order, without looking at the others."""
    for request_class in (RequestClass.FLEX, RequestClass.OFFLINE):
        place = bisect_left(rows, request_class, key=lambda row: row.request_class)
        while place < len(rows):
            row = rows[place]
            if row.request_class is not request_class or row.phase is not Phase.RETRACTED:
                break
            yield row
            place += 1
