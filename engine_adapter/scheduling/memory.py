"""Who gives up device pages, and in which order.

ConServe v1 section 4.4 and v2 Algorithm 1: parked offline requests first, and among them those
whose KV is already on the host, because dropping it loses nothing; then the row that is needed
last. A row whose last step is not processed yet cannot be a victim. In the overlap loop that is
every row that runs: one that an online request needs rests for a step, and gives its pages up in
the next (decision 0092). What online requests are owed then is kept out of this step's offline
work.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from engine_adapter.scheduling.builder import PlanBuilder
from engine_adapter.scheduling.policies.settings import PolicySettings
from engine_adapter.scheduling.queue import RowsByRole
from engine_adapter.scheduling.request import Phase, Release, RequestRow, pages_for, running_key


def lost_tokens(row: RequestRow, host_page_tokens: int) -> int:
    """Tokens that would have to be computed again if the row were retracted now.

    The unfinished tail page does not count: it is copied when the row is retracted.
    """
    full = row.computed_tokens // host_page_tokens * host_page_tokens
    return max(0, full - row.host_pages * host_page_tokens)


def victim_order(rows: Iterable[RequestRow], host_page_tokens: int) -> list[RequestRow]:
    """Rows to retract, best victim first, those among them whose last result is on its way."""
    candidates = [row for row in rows if not row.host_pages_pending]
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

    A row may only displace less important ones: an online request displaces every offline request
    and, when none is left, the online requests that came after it; an offline request displaces the
    offline requests that come after it. Rows the step has taken are passed over.

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

        Nobody is retracted when even all victims together would not be enough. Where they would be
        with rows whose last result is on its way, the chosen rest, if it is for an online request.

        Args:
            beneficiary: The row that needs the room.
            num_pages: Device pages the builder must have left.
            num_slots: Slots the builder must have left.
        """
        builder = self._builder
        if builder.pages_left >= num_pages and builder.slots_left >= num_slots:
            return True
        chosen = self._choose(beneficiary, num_pages, num_slots, in_flight=False)
        for row in chosen:
            builder.retract(row)
        if not chosen and beneficiary.is_online:
            self._rest(beneficiary, num_pages, num_slots)
        return bool(chosen)

    def foresee(self, online: Sequence[RequestRow]) -> None:
        """Let offline requests rest for what these decoding requests need in the next step.

        Without a result on its way a row gives way in the very step that needs its pages.
        """
        builder = self._builder
        others = len(self._offline)
        if not online or builder.pages_left >= others + 2 * len(online):
            return
        if any(row.in_flight for row in self._offline):
            num_pages = sum(builder.next_pages(row) for row in online)
            if num_pages and builder.pages_left < others + builder.owed_pages + num_pages:
                self._rest(online[-1], num_pages, 0)

    def _rest(self, beneficiary: RequestRow, num_pages: int, num_slots: int) -> None:
        """Let as many rows rest as the beneficiary, beside what is owed already, needs."""
        builder = self._builder
        pages = builder.owed_pages + num_pages - builder.coming_pages
        slots = builder.owed_slots + num_slots - builder.coming_slots
        resting: list[RequestRow] = []
        if builder.pages_left < pages or builder.slots_left < slots:
            resting = self._choose(beneficiary, pages, slots, in_flight=True)
            if not resting:
                return
        for row in resting:
            builder.rest(row)
        builder.owe(num_pages, num_slots)

    def _choose(
        self, beneficiary: RequestRow, num_pages: int, num_slots: int, *, in_flight: bool
    ) -> list[RequestRow]:
        """The first victims that are enough together; none if all are not.

        Rows that free nothing alone are asked only where the others are not enough.
        """
        rows = [row for row in self._candidates(beneficiary) if in_flight or not row.in_flight]
        alone = [row for row in rows if row.freeable_pages or self._builder.slots_left < num_slots]
        before = self._builder.coming if in_flight else self._builder.release
        for some in (alone, rows):
            release = Release(before)
            pages, slots = self._builder.pages_left, self._builder.slots_left
            for i, row in enumerate(some):
                pages += release.add(row)
                slots += 1
                if pages >= num_pages and slots >= num_slots:
                    return [r for r in some[: i + 1] if some is alone or release.frees_part_of(r)]
            if len(some) == len(rows):
                break
        return []

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


# --- Retracted online requests come back first, at the cost of offline requests.


def fetch_online(builder: PlanBuilder, rows: RowsByRole) -> None:
    """Order online requests back from the host.

    Args:
        builder: The step, with its online tokens taken and nothing offline.
        rows: The rows of its snapshot.
    """
    from_offline = VictimPool(builder, rows.offline, ())
    from_all = VictimPool(builder, rows.offline, rows.online)
    for row in [*rows.prefetching, *rows.online_waiting]:
        if not row.is_online or row.host_tokens == 0 or row.rid in builder.taken:
            continue
        # Room for all of it: half a row would hold pages and serve nobody.
        num_pages = pages_for(row.host_tokens, builder.page_tokens) + 1 - row.device_pages
        if (row.holds_slot or builder.pages_left >= num_pages) and builder.prefetch(row):
            continue
        if from_offline.make_room(row, num_pages, 0 if row.holds_slot else 1):
            builder.prefetch(row)
        elif row.holds_slot and from_all.make_room(row, num_pages):
            # It holds pages nobody can use: newer online requests this step has not taken give way.
            builder.prefetch(row)


# --- Which pages are copied to the host beside the step (ConServe v1 section 4.4, v2 section 4.4).
#
# Nothing while free KV is at or above a threshold. Below it the number of rows covered ramps up
# with the shortage, the way random early detection ramps up its drop rate, so that copying keeps
# pace with allocation::
#
#     rows covered
#       all │          ┌──
#           │       ╱
#           │    ╱
#         0 └──────────────► shortage
#           threshold    none free
#
# The shortage is that of KV or, in ConServe v2, of slots, whichever is greater.
#
# Copies are capped by what the interconnect moves during one step; the rest waits. Rows that will
# be retracted first are covered first. Online requests are covered when memory is nearly gone.


def uncopied_pages(row: RequestRow, host_page_tokens: int) -> int:
    """Completed pages of ``row`` that are neither on the host nor on their way.

    Tokens of a launched step count: the port copies behind the step that writes them.
    """
    return row.computed_tokens // host_page_tokens - row.host_pages - row.host_pages_pending


def order_checkpoints(
    builder: PlanBuilder,
    offline: Sequence[RequestRow],
    online: Sequence[RequestRow],
    settings: PolicySettings,
    *,
    for_slots: bool = False,
) -> None:
    """Add this step's copies to the plan.

    Args:
        builder: The step, with its rows already taken.
        offline: Flex and offline slot holders, most important first.
        online: Online slot holders.
        settings: Thresholds.
        for_slots: Slots count as KV does, whichever is shorter: an online request that begins takes
            one, however much KV is free.
    """
    resources = builder.snapshot.resources
    if builder.copy_left <= 0 or builder.host_left <= 0 or resources.total_pages <= 0:
        return
    free_share = least_share = builder.pages_left / resources.total_pages
    if for_slots:
        least_share = min(free_share, builder.slots_left / resources.total_slots)
    threshold = settings.checkpoint_free_share
    if threshold <= 0.0 or least_share >= threshold:
        return
    covered = math.ceil(len(offline) * min(1.0, 2.0 * (1.0 - least_share / threshold)))
    left = _copy(builder, list(reversed(offline))[:covered])
    if left and free_share < min(threshold, settings.checkpoint_online_share):
        _copy(builder, online)


def _copy(builder: PlanBuilder, rows: Sequence[RequestRow]) -> bool:
    """Copy row after row; False once host or interconnect are used up."""
    host_page, retracted = builder.snapshot.resources.host_page_tokens, builder.retracted
    return builder.checkpoint(
        (row, pages)
        for row in rows
        if row.phase is not Phase.PREFETCHING and row.rid not in retracted
        if (pages := uncopied_pages(row, host_page)) > 0
    )
