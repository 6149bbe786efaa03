"""Who gives up device pages, and in which order.

ConServe v1 section 4.4 and v2 Algorithm 1: parked offline rows first, and among them those whose
KV is already on the host, because dropping it loses nothing; then the row that is needed last.
A row whose last step is not processed yet cannot be a victim.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from engine_adapter.core.request import RequestRow, running_key
from engine_adapter.policies.parts.builder import PlanBuilder


def lost_tokens(row: RequestRow, host_page_tokens: int) -> int:
    """Tokens that would have to be computed again if the row were retracted now.

    The unfinished tail page does not count: it is copied when the row is retracted.
    """
    full = row.computed_tokens // host_page_tokens * host_page_tokens
    return max(0, full - row.host_pages * host_page_tokens)


def victim_order(rows: Iterable[RequestRow], host_page_tokens: int) -> list[RequestRow]:
    """Rows to retract, best victim first."""
    candidates = [row for row in rows if not row.in_flight and not row.host_pages_pending]
    candidates.sort(
        key=lambda row: (
            lost_tokens(row, host_page_tokens) > 0,
            -row.request_class,
            -row.deadline_at_s,
            -row.sequence,
        )
    )
    return candidates


class VictimPool:
    """Retracts rows on demand until a step's needs are met.

    A row may only displace less important ones: an online row displaces every offline row and,
    when none is left, the online rows that came after it; an offline row displaces the offline
    rows that come after it. Rows the step has taken are passed over.

    Args:
        builder: The step that needs room.
        offline: Flex and offline slot holders.
        online: Online slot holders.
    """

    def __init__(
        self, builder: PlanBuilder, offline: Sequence[RequestRow], online: Sequence[RequestRow]
    ) -> None:
        """Keep the rows; they are put in order when the first victim is needed."""
        self._builder = builder
        self._offline = offline
        self._online = online
        self._ordered: list[RequestRow] | None = None

    def make_room(self, beneficiary: RequestRow, num_pages: int, num_slots: int = 0) -> bool:
        """Retract until the builder has that many pages and slots left.

        Nobody is retracted when even all victims together would not be enough.

        Args:
            beneficiary: The row that needs the room.
            num_pages: Device pages the builder must have left.
            num_slots: Slots the builder must have left.
        """
        builder = self._builder
        pages, slots = builder.pages_left, builder.slots_left
        chosen: list[RequestRow] = []
        if pages < num_pages or slots < num_slots:
            for row in self._candidates(beneficiary):
                if row.freeable_pages == 0 and slots >= num_slots:
                    continue
                chosen.append(row)
                pages += row.freeable_pages
                slots += 1
                if pages >= num_pages and slots >= num_slots:
                    break
            else:
                return False
        for row in chosen:
            builder.retract(row)
        return True

    def _candidates(self, beneficiary: RequestRow) -> Iterator[RequestRow]:
        if self._ordered is None:
            host_page = self._builder.snapshot.resources.host_page_tokens
            self._ordered = victim_order(self._offline, host_page)
            self._ordered += victim_order(self._online, host_page)
        key = running_key(beneficiary)
        taken = self._builder.taken
        for row in self._ordered:
            if row.rid not in taken and running_key(row) > key:
                yield row
