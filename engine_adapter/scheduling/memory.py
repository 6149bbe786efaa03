"""Who gives up device pages, and in which order.

ConServe v1 section 4.4 and v2 Algorithm 1: parked offline requests first, and among them those
whose KV is already on the host, because dropping it loses nothing; then the request that is needed
last. A request whose last step is not processed yet cannot be a victim. In the overlap loop that is
every request that runs: one that an online request needs rests for a step, and gives its pages up
in the next (decision 0092). What online requests are owed then is kept out of this step's offline
work.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from engine_adapter.scheduling.builder import PlanBuilder
from engine_adapter.scheduling.policies.settings import PolicySettings
from engine_adapter.scheduling.queue import RequestsByPhase
from engine_adapter.scheduling.request import Phase, Release, Request, pages_for, running_key


def lost_tokens(request: Request, host_page_tokens: int) -> int:
    """Tokens that would have to be computed again if the request were retracted now.

    The unfinished tail page does not count: it is copied when the request is retracted.
    """
    full = request.computed_tokens // host_page_tokens * host_page_tokens
    return max(0, full - request.host_pages * host_page_tokens)


def victim_order(requests: Iterable[Request], host_page_tokens: int) -> list[Request]:
    """Requests to retract, best victim first, those among them whose last result is on its way."""
    candidates = [request for request in requests if not request.host_pages_pending]
    candidates.sort(
        key=lambda request: (
            lost_tokens(request, host_page_tokens) > 0,
            -request.request_class,
            -request.deadline_at_s,
            -request.sequence,
        )
    )
    return candidates


class VictimPool:
    """Retracts requests on demand until a step's needs are met.

    A request may only displace less important ones: an online request displaces every offline
    request and, when none is left, the online requests that came after it; an offline request
    displaces the offline requests that come after it. Requests the step has taken are passed over.

    Args:
        builder: The step that needs room.
        offline: Flex and offline slot holders.
        online: Online slot holders.
    """

    def __init__(
        self, builder: PlanBuilder, offline: Sequence[Request], online: Sequence[Request]
    ) -> None:
        """Keep the requests; they are put in order when the first victim is needed."""
        self._builder = builder
        self._offline = offline
        self._online = online
        self._ordered: list[Request] | None = None

    def make_room(self, beneficiary: Request, num_pages: int, num_slots: int = 0) -> bool:
        """Retract until the builder has that many pages and slots left.

        Nobody is retracted when even all victims together would not be enough. Where they would be
        with requests whose last result is on its way, the chosen rest, if it is for an online
        request.

        Args:
            beneficiary: The request that needs the room.
            num_pages: Device pages the builder must have left.
            num_slots: Slots the builder must have left.
        """
        builder = self._builder
        if builder.pages_left >= num_pages and builder.slots_left >= num_slots:
            return True
        chosen = self._choose(beneficiary, num_pages, num_slots, in_flight=False)
        for request in chosen:
            builder.retract(request)
        if not chosen and beneficiary.is_online:
            self._rest(beneficiary, num_pages, num_slots)
        return bool(chosen)

    def foresee(self, online: Sequence[Request]) -> None:
        """Let offline requests rest for what these decoding requests need in the next step.

        Without a result on its way a request gives way in the very step that needs its pages.
        """
        builder = self._builder
        others = len(self._offline)
        if not online or builder.pages_left >= others + 2 * len(online):
            return
        if any(request.in_flight for request in self._offline):
            num_pages = sum(builder.next_pages(request) for request in online)
            if num_pages and builder.pages_left < others + builder.owed_pages + num_pages:
                self._rest(online[-1], num_pages, 0)

    def _rest(self, beneficiary: Request, num_pages: int, num_slots: int) -> None:
        """Let as many requests rest as the beneficiary, beside what is owed already, needs."""
        builder = self._builder
        pages = builder.owed_pages + num_pages - builder.coming_pages
        slots = builder.owed_slots + num_slots - builder.coming_slots
        resting: list[Request] = []
        if builder.pages_left < pages or builder.slots_left < slots:
            resting = self._choose(beneficiary, pages, slots, in_flight=True)
            if not resting:
                return
        for request in resting:
            builder.rest(request)
        builder.owe(num_pages, num_slots)

    def _choose(
        self, beneficiary: Request, num_pages: int, num_slots: int, *, in_flight: bool
    ) -> list[Request]:
        """The first victims that are enough together; none if all are not.

        Requests that free nothing alone are asked only where the others are not enough.
        """
        requests = [
            request
            for request in self._candidates(beneficiary)
            if in_flight or not request.in_flight
        ]
        alone = [
            request
            for request in requests
            if request.freeable_pages or self._builder.slots_left < num_slots
        ]
        before = self._builder.coming if in_flight else self._builder.release
        for some in (alone, requests):
            release = Release(before)
            pages, slots = self._builder.pages_left, self._builder.slots_left
            for i, request in enumerate(some):
                pages += release.add(request)
                slots += 1
                if pages >= num_pages and slots >= num_slots:
                    return [r for r in some[: i + 1] if some is alone or release.frees_part_of(r)]
            if len(some) == len(requests):
                break
        return []

    def _candidates(self, beneficiary: Request) -> Iterator[Request]:
        if self._ordered is None:
            host_page = self._builder.snapshot.resources.host_page_tokens
            self._ordered = victim_order(self._offline, host_page)
            self._ordered += victim_order(self._online, host_page)
        key = running_key(beneficiary)
        taken = self._builder.taken
        for request in self._ordered:
            if request.rid not in taken and running_key(request) > key:
                yield request


# --- Retracted online requests come back first, at the cost of offline requests.


def fetch_online(builder: PlanBuilder, requests: RequestsByPhase) -> None:
    """Order online requests back from the host.

    Args:
        builder: The step, with its online tokens taken and nothing offline.
        requests: The requests of its snapshot.
    """
    from_offline = VictimPool(builder, requests.offline, ())
    from_all = VictimPool(builder, requests.offline, requests.online)
    for request in [*requests.restoring, *requests.online_waiting]:
        if not request.is_online or request.host_tokens == 0 or request.rid in builder.taken:
            continue
        # Room for all of it: half a request would hold pages and serve nobody.
        num_pages = pages_for(request.host_tokens, builder.page_tokens) + 1 - request.device_pages
        if (request.holds_slot or builder.pages_left >= num_pages) and builder.restore(request):
            continue
        if from_offline.make_room(request, num_pages, 0 if request.holds_slot else 1):
            builder.restore(request)
        elif request.holds_slot and from_all.make_room(request, num_pages):
            # It holds pages nobody can use: newer online requests this step has not taken give way.
            builder.restore(request)


# --- Which pages are copied to the host beside the step (ConServe v1 section 4.4, v2 section 4.4).
#
# Nothing while free KV is at or above a threshold. Below it the number of requests covered ramps up
# with the shortage, the way random early detection ramps up its drop rate, so that copying keeps
# pace with allocation::
#
#     requests covered
#       all │          ┌──
#           │       ╱
#           │    ╱
#         0 └──────────────► shortage
#           threshold    none free
#
# The shortage is that of KV or, in ConServe v2, of slots, whichever is greater.
#
# Copies are capped by what the interconnect moves during one step; the rest waits. Requests that
# will be retracted first are covered first. Online requests are covered when memory is nearly gone.


def uncopied_pages(request: Request, host_page_tokens: int) -> int:
    """Completed pages of ``request`` that are neither on the host nor on their way.

    Tokens of a launched step count: the port copies behind the step that writes them.
    """
    return (
        request.computed_tokens // host_page_tokens
        - request.host_pages
        - request.host_pages_pending
    )


def order_checkpoints(
    builder: PlanBuilder,
    offline: Sequence[Request],
    online: Sequence[Request],
    settings: PolicySettings,
    *,
    for_slots: bool = False,
) -> None:
    """Add this step's copies to the plan.

    Args:
        builder: The step, with its requests already taken.
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


def _copy(builder: PlanBuilder, requests: Sequence[Request]) -> bool:
    """Copy request after request; False once host or interconnect are used up."""
    host_page, retracted = builder.snapshot.resources.host_page_tokens, builder.retracted
    return builder.checkpoint(
        (request, pages)
        for request in requests
        if request.phase is not Phase.RESTORING and request.rid not in retracted
        if (pages := uncopied_pages(request, host_page)) > 0
    )
