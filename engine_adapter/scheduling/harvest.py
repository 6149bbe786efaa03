"""Gives flex and offline requests what a step has left.

Beside online requests the step is filled up to the TBT target. Without any, it is filled for
throughput. In both cases decoding requests come in priority order, and waiting requests begin as
:mod:`~engine_adapter.scheduling.harvest` has it. Kinds of work that cannot share a step take
turns (:mod:`~engine_adapter.scheduling.queue`).
"""

from __future__ import annotations

import math

from engine_adapter.scheduling.builder import UNBOUNDED_S, PlanBuilder, with_requests
from engine_adapter.scheduling.latency import LatencyModel, StepLoad
from engine_adapter.scheduling.memory import VictimPool
from engine_adapter.scheduling.plan import SafepointMode
from engine_adapter.scheduling.policies.settings import PolicySettings
from engine_adapter.scheduling.queue import (
    OfflineOrder,
    RequestsByPhase,
    StepAlternation,
    flex_room,
    retracted_requests,
)
from engine_adapter.scheduling.request import Phase, Release, Request, RequestClass, pages_for
from engine_adapter.scheduling.snapshot import Snapshot

# --- Which waiting offline requests a step begins, and which of them hold up those behind.
#
# A request is admitted only if its whole prompt has pages, with some kept back for the growth of
# the requests already running and for the next online prompt: admitting more would only retract it
# again. A request that does not fit holds up those behind it, or they would take the pages it waits
# for. It is passed over only where their waiting would not help it:
#
# - online requests hold so much that it would not fit even with all offline requests gone;
# - it cannot share a step with the online decoding requests: it has one of its own in turn;
# - it begins behind so long a prefix that the step has no time for its tokens;
# - nothing offline has moved for many steps, so nothing will end and make room.


FLEX, WAITING = RequestClass.FLEX, Phase.WAITING
MAX_PARTIAL_BESIDE_ONLINE = 4


class Admission:
    """Begins waiting requests while a step has pages, slots and time for them.

    Args:
        builder: The step.
        requests: Slot holders of its snapshot.
        order: Counts admissions.
        turns: Is told who was passed over for not sharing a step.
        keep_tokens: Tokens for which pages are kept back from requests that begin.
    """

    def __init__(
        self,
        builder: PlanBuilder,
        requests: RequestsByPhase,
        order: OfflineOrder,
        turns: StepAlternation,
        *,
        keep_tokens: int,
    ) -> None:
        """Reserve what requests that have begun still need."""
        self._builder = builder
        self._requests = requests
        self._order = order
        self._turns = turns
        self._keep_pages = pages_for(keep_tokens, builder.page_tokens)
        # Prompts and checkpoints already begun have first claim on what is free.
        for request in requests.offline_partial:
            self._keep_pages += (
                pages_for(request.fill_tokens, builder.page_tokens) - request.device_pages
            )
        for request in requests.restoring:
            self._keep_pages += (
                pages_for(request.host_tokens, builder.page_tokens) - request.device_pages
            )
        self._is_turn = self._one_passed = False
        self._beside_online = self._beside_decode = self._decode_mixes = False
        self._pages_offered, self._tokens_in_reach = 0, -1
        self._no_time_from, self._no_time_room = math.inf, -1

    def open(self, *, is_turn: bool = False) -> None:
        """Begin with the online requests in the step, or left out of it for a turn."""
        builder = self._builder
        self._is_turn, self._one_passed = is_turn, False
        self._beside_online = is_turn or builder.num_online > 0
        self._beside_decode = is_turn or builder.has_decode
        self._decode_mixes = (
            builder.snapshot.limits.can_mix and self._requests.online_decode.can_mix
        )
        self._pages_offered, self._tokens_in_reach = builder.pages_left, -1
        self._no_time_from, self._no_time_room = math.inf, -1

    def may_begin(self) -> bool:
        """Whether there is a slot; beside online requests prompts are finished before others begin.

        Only a finished prompt becomes a decoding request, which fills a step at the lowest price.
        """
        few = len(self._requests.offline_partial) < MAX_PARTIAL_BESIDE_ONLINE
        may = not self._beside_online or few or self._is_turn or self._turns.is_stalled
        return may and self._builder.has_offline_slot

    def admit(self, request: Request, budget_s: float) -> bool:
        """Try to admit a waiting request; False if the step is full and the caller should stop.

        Behind requests that are passed over this is asked for a thousand of them: cheap answers
        first.
        """
        if (
            request.cached_tokens >= self._no_time_from
            and request.fill_tokens <= self._no_time_room
            and request.phase is WAITING
            and request.can_mix
        ):
            return True  # like the one before it, of which the step had no time for a token
        builder = self._builder
        if builder.chunk_left <= 0 or builder.requests_left <= 0:
            return False
        if request.rid in builder.taken or (self._one_passed and not request.can_mix):
            return True
        fetched = request.phase is Phase.RETRACTED and request.host_tokens > 0
        num_tokens, room_tokens = (
            request.host_tokens if fetched else request.fill_tokens,
            self._room_tokens(),
        )
        if num_tokens > room_tokens:
            return self._is_passed_over(num_tokens)
        if fetched:
            return self.fetch(request)
        if self.is_for_another(request):
            self._one_passed = not request.can_mix
            # Else requests that come right behind it would have each slot that one of them gives
            # up.
            has_slot = self._turns.is_refused or builder.offline_slots_left > 1
            return has_slot and (self._decode_mixes or self._is_turn)
        start = request.cached_tokens  # a waiting request's
        if start >= self._no_time_from:
            return True
        if not self.has_time(request, budget_s):
            self._no_time_from = start
            self._no_time_room = -1 if self._is_turn or not request.can_mix else room_tokens
            return start > 0
        self._no_time_room = -1  # what is taken now is no longer there
        remaining = request.remaining_tokens
        taken = builder.chunk(request, budget_s, self._keep_for(request))
        if taken:
            self._order.admitted(request)
        return taken == remaining

    def fetch(self, request: Request) -> bool:
        """Begin to bring a retracted request back; False if it does not fit, or may not begin now.

        What is left of it counts as promised: newer requests must not take the pages it waits for.
        """
        builder = self._builder
        if request.host_tokens > self._room_tokens():
            return False
        before = builder.pages_left
        if builder.restore(request) == 0:
            return False
        self._no_time_room = -1
        whole = pages_for(request.host_tokens, builder.page_tokens) - request.device_pages
        self._keep_pages += whole - (before - builder.pages_left)
        return True

    def is_for_another(self, request: Request) -> bool:
        """Whether a prompt belongs to another step: its turn, or one with the online requests."""
        shares = self._may_share(request)
        if self._is_turn:
            return shares
        if not shares:
            self._turns.pass_over(self._builder)
        return not shares

    def has_time(self, request: Request, budget_s: float) -> bool:
        """Whether a token of the request fits the step; alone there is time for any."""
        return not self._beside_online or self.room(request, budget_s) > 0

    def room(self, request: Request, budget_s: float) -> int:
        """Prompt tokens of the request that fit the step."""
        return self._builder.chunk_room(request, budget_s, self._keep_for(request))

    def _keep_for(self, request: Request) -> int:
        """Pages kept from this request: none if it has begun, or is the only one.

        What is kept is kept for requests that have begun.
        """
        return 0 if request.holds_slot or not self._others_exist() else self._keep_pages

    def _room_tokens(self) -> int:
        """Tokens that a waiting request may have at its end of prompt."""
        builder = self._builder
        keep = self._keep_pages if self._others_exist() else 0
        return (builder.pages_left - keep) * builder.page_tokens

    def _others_exist(self) -> bool:
        return self._builder.num_offline > 0 or len(self._requests.offline) > 0

    def _may_share(self, request: Request) -> bool:
        return not self._beside_decode or (self._decode_mixes and request.can_mix)

    def _is_passed_over(self, num_tokens: int) -> bool:
        """Whether so many tokens would not fit if all offline requests were gone, or none goes."""
        if self._turns.is_stalled:
            return True
        if self._tokens_in_reach < 0:
            release = Release()
            offline_pages = sum(release.add(request) for request in self._requests.offline)
            num_pages = self._pages_offered + offline_pages
            self._tokens_in_reach = num_pages * self._builder.page_tokens
        return num_tokens > self._tokens_in_reach


def offline_only_budget_s(
    snapshot: Snapshot,
    model: LatencyModel,
    *,
    stoppable: bool,
    longest_s: float,
    prompt_tokens: int,
) -> float:
    """Bound for a step without online requests.

    One that cannot be stopped has to end early enough for a typical online prompt that arrives at
    its beginning:

        T <= w,  w = t_TTFT - T(prefill of a typical online prompt)

    One that can be stopped may last `longest_s`. No bound is less than the TBT target, under which
    nothing useful fits.
    """
    if stoppable:
        return longest_s
    prompt = StepLoad()
    prompt.add_chunk(prompt_tokens, 0)
    room_s = snapshot.slo.ttft_s - model.predict(prompt) - snapshot.overhead_s
    return max(room_s, snapshot.slo.tbt_s)


# Requests further down the order may be cheaper and still fit; looking at all of them costs time.
MAX_TOO_SLOW = 8


class Harvester:
    """Fills one step with offline work."""

    def __init__(
        self,
        builder: PlanBuilder,
        requests: RequestsByPhase,
        victims: VictimPool,
        order: OfflineOrder,
        turns: StepAlternation,
        settings: PolicySettings,
        typical_online_tokens: int,
    ) -> None:
        """Bind the step under construction and the requests it may use."""
        self._builder = builder
        self._requests = requests
        self._victims = victims
        self._order = order
        self._turns = turns
        self._settings = settings
        self._typical = typical_online_tokens
        self._admission = Admission(
            builder,
            requests,
            order,
            turns,
            keep_tokens=typical_online_tokens
            + settings.growth_tokens * (len(requests.offline) + 1),
        )

    def fill_beside_online(self, budget_s: float) -> None:
        """Decoding requests, then prompt tokens, up to the bound (Algorithm 1, line 2)."""
        self._admission.open()
        self._take_decode(budget_s)
        self._take_chunks(budget_s)
        self._turns.close(self._builder, self._requests)

    def fill_turn(self, tbt_s: float) -> bool:
        """A step of their own for prompts that cannot share one with the online decoding requests.

        Args:
            tbt_s: Bound of the gap that the online requests have; their decode step is part of it.

        Returns:
            Whether they have one. If not, the online requests may be taken as if nothing was asked.
        """
        builder, online = self._builder, self._requests.online_decode
        num_pages = online.pages.total
        if not self._turns.prompts_owed or builder.pages_left < num_pages:
            return False
        decode_s = builder.model.predict(with_requests(StepLoad(), online, len(online.requests)))
        builder.pages_left -= num_pages  # for the step after this one
        self._admission.open(is_turn=True)
        self._take_chunks(tbt_s - decode_s - builder.snapshot.overhead_s)
        self._turns.is_refused = not builder.has_chunks
        if not builder.has_chunks:
            builder.pages_left += num_pages
            return False
        self._turns.close(builder, self._requests)
        return True

    def fill_alone(self) -> float:
        """Offline batching mode; returns the bound used.

        Prompt tokens and decoding requests share the step if one step is predicted to be no slower
        than two. Otherwise prompts go first, since more decoding requests share each later decode
        step, and the two take turns: prompts that end without decoding would come first for ever.
        """
        builder, limits = self._builder, self._builder.snapshot.limits
        armed = self._settings.safepoints
        if armed and limits.prefill_safepoints and builder.runs_eager(SafepointMode.ABORT):
            builder.run_eager()
        prefill_s = self._bound_s(armed and limits.prefill_safepoints)
        decode_s = self._bound_s(armed and limits.decode_safepoints)
        self._admission.open()
        if not self._turns.decode_owed:
            self._take_chunks(prefill_s)
        if builder.has_chunks:
            budget_s = prefill_s
            if self._sharing_pays():
                budget_s = min(prefill_s, decode_s)
                self._take_decode(budget_s)
        else:
            budget_s = decode_s
            self._take_decode(decode_s, at_least_one=True)
            if builder.is_empty:
                self._unblock(prefill_s)
            if builder.is_empty:
                self._take_least()
        self._turns.close(builder, self._requests)
        return budget_s

    def order_restores(self) -> None:
        """Bring retracted requests back while pages, slots and interconnect allow it."""
        builder = self._builder
        for request in self._requests.restoring:
            if request.rid in builder.taken or builder.restore(request):
                continue
            if builder.is_empty and self._victims.make_room(request, builder.pages_left + 1):
                builder.restore(request)
        if builder.makes_room or not builder.has_offline_slot:
            return
        for request in retracted_requests(builder.snapshot.offline_waiting):
            if request.host_tokens == 0 or request.rid in builder.taken:
                continue
            if not self._admission.fetch(request):
                return

    def _bound_s(self, stoppable: bool) -> float:
        snapshot = self._builder.snapshot
        return offline_only_budget_s(
            snapshot,
            self._builder.model,
            stoppable=stoppable,
            longest_s=self._settings.offline_step_factor * snapshot.slo.ttft_s,
            prompt_tokens=self._typical,
        )

    def _take_decode(self, budget_s: float, *, at_least_one: bool = False) -> None:
        builder = self._builder
        too_slow = 0
        ready = builder.untaken(self._requests.offline_decode)
        for request in ready.requests[builder.decode_run(ready, budget_s) :]:
            if builder.requests_left <= 0 or too_slow >= MAX_TOO_SLOW:
                return
            if request.rid in builder.taken:
                continue
            bound_s = UNBOUNDED_S if at_least_one and builder.is_empty else budget_s
            if builder.decode(request, bound_s):
                continue
            pages = builder.decode_pages(request)
            if pages <= builder.pages_left:
                too_slow += 1
            elif not self._victims.make_room(request, pages) or not builder.decode(
                request, bound_s
            ):
                # Out of pages, and no less important request has any to give.
                return

    def _unblock(self, budget_s: float) -> None:
        """Half-filled prompts hold all pages: the most important one displaces the others."""
        builder = self._builder
        for request in self._requests.offline_partial:
            if request.rid in builder.taken:
                continue
            tokens = min(request.remaining_tokens, builder.chunk_left)
            whole = pages_for(request.start_tokens + tokens, builder.page_tokens)
            if self._victims.make_room(request, whole - request.device_pages):
                builder.chunk(request, budget_s)
                return

    def _take_least(self) -> None:
        """No prompt token fits the bound: one host page of tokens all the same.

        A target that nothing can meet must not keep a batch waiting for ever, and an online
        request that arrives waits for as little as can be.
        """
        builder = self._builder
        least = max(builder.page_tokens, builder.snapshot.resources.host_page_tokens)
        builder.chunk_left = min(builder.chunk_left, least)
        self._take_chunks(UNBOUNDED_S)

    def _take_chunks(self, budget_s: float) -> None:  # noqa: C901
        builder, admission = self._builder, self._admission
        for request in self._requests.offline_partial:
            if builder.chunk_left <= 0 or builder.requests_left <= 0:
                return
            if request.rid in builder.taken:
                continue
            if admission.is_for_another(request) or not admission.has_time(request, budget_s):
                continue
            if builder.chunk(request, budget_s) < request.remaining_tokens:
                return
        # Pages one step freed for online requests are not given away in the same step.
        if builder.makes_room or not admission.may_begin():
            return
        room = flex_room(builder.snapshot, self._settings.flex_max_share)
        beyond_share: list[Request] = []
        for request in self._order.waiting(builder.snapshot):
            if request.request_class is FLEX:
                if room <= 0:
                    beyond_share.append(request)
                    continue
                room -= 1
            if not admission.admit(request, budget_s):
                return
        # No offline request wants the rest: flex may have it.
        for request in beyond_share:
            if not admission.admit(request, budget_s):
                return

    def _sharing_pays(self) -> bool:
        """Whether one mixed step is predicted to be no slower than a prefill and a decode step."""
        builder, predict = self._builder, self._builder.model.predict
        if not self._requests.offline_decode or not builder.snapshot.limits.can_mix:
            return False
        ready = builder.untaken(self._requests.offline_decode)
        decode = with_requests(StepLoad(), ready, len(ready.requests))
        mixed = with_requests(builder.load, ready, len(ready.requests))
        return predict(mixed) <= predict(builder.load) + predict(decode)
