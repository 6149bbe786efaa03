"""Gives online requests their tokens, reclaiming from offline requests what they lack.

All decoding requests come first, then prompts: from the oldest on, or in the order of their
response ratios (`by_response_ratio`). Steps alternate if the executor cannot mix the two, or if one
mixed step is predicted to be slower than one of each, so that neither starves the other.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from engine_adapter.scheduling.builder import UNBOUNDED_S, PlanBuilder, with_requests
from engine_adapter.scheduling.latency import StepLoad
from engine_adapter.scheduling.memory import VictimPool
from engine_adapter.scheduling.queue import RequestsByPhase
from engine_adapter.scheduling.request import Phase, Request, pages_for
from engine_adapter.scheduling.snapshot import DecodeReady, Snapshot

# --- What online requests have been like: how long their prompts are, and how often one comes.


class OnlineArrivals:
    """The running mean of online prompts, for reserving room before the next one arrives.

    Args:
        initial_tokens: Prompt length assumed until a request has been seen.
        weight: Weight of the newest prompt once enough have been seen.
    """

    def __init__(self, initial_tokens: int, weight: float = 0.1) -> None:
        self._mean = float(initial_tokens)
        self._weight = weight
        self._last_sequence = -1
        self._count = 0

    def update(self, snapshot: Snapshot) -> None:
        """Take in the online requests that arrived since the last snapshot."""
        newest = self._last_sequence
        for request in snapshot.online_waiting:
            if request.sequence > self._last_sequence:
                self._count += 1
                weight = max(self._weight, 1.0 / self._count)
                self._mean += weight * (request.prompt_tokens - self._mean)
                newest = max(newest, request.sequence)
        self._last_sequence = newest

    @property
    def prompt_tokens(self) -> int:
        """Expected length of the next prompt."""
        return max(1, round(self._mean))


# --- How long a step may take, for the next tokens of online requests.

# Behind so many prompts the next one is late in any case, and planning has its price.
MAX_PROMPTS_WAITING = 32

# A model may predict no time at all: its coefficients may be zero.
SHORTEST_S = 1e-9


def next_token_slack_s(builder: PlanBuilder, requests: DecodeReady) -> float:
    """How long a step may last for the next token of every online request that decodes.

    A request with ``k`` tokens has two deadlines for the next one:

        last token + t_TBT          and          first token + k t_TPOT

    All of them are in every step, so the first is the TBT target itself. Against the second, tokens
    that came early bank time for the steps to come. A step no longer than ``t_TPOT`` lets no
    request fall further behind, so who is late already does not bound it more.

    Args:
        builder: The step.
        requests: The online requests that decode.
    """
    snapshot = builder.snapshot
    slo = snapshot.slo
    if math.isinf(slo.tpot_s):
        return slo.tbt_s
    slack_s = slo.tbt_s
    for request in requests.requests:
        if request.first_token_at_s >= 0.0:
            num_tokens = request.computed_tokens - request.prompt_tokens + 1
            due_s = request.first_token_at_s + num_tokens * slo.tpot_s - snapshot.now_s
            slack_s = min(slack_s, builder.budget_of(due_s, builder.pace_quantile))
    return max(slack_s, min(slo.tpot_s, slo.tbt_s))


def first_token_slack_s(
    builder: PlanBuilder, requests: Sequence[Request], share: float = 1.0
) -> float:
    """How long a step may last for the first tokens that wait for it; infinite if none does.

    A prompt that the step finishes has its token at the step's end. What is left of the others is
    computed after it, oldest first, in at least one step more:

        T <= arrival + share t_TTFT - now - T(what is left up to this prompt)

    Args:
        builder: The step, with its online requests taken.
        requests: Online requests that had prompt tokens left before it, oldest first.
        share: Of the target, what they may take (:class:`.PolicySettings`).
    """
    snapshot = builder.snapshot
    slack_s = math.inf
    left = StepLoad()
    ttft_s = share * snapshot.slo.ttft_s
    for request in requests[:MAX_PROMPTS_WAITING]:
        due_s = request.arrival_at_s + ttft_s - snapshot.now_s
        num_taken, num_tokens = builder.chunk_tokens_of(request), request.remaining_tokens
        if num_taken < num_tokens:
            left.add_chunk(num_tokens - num_taken, request.start_tokens + num_taken)
            due_s -= builder.model.predict(left) + snapshot.overhead_s
        slack_s = min(slack_s, due_s)
    return builder.budget_of(slack_s, builder.first_quantile)


# --- Whose prompt is next.


def by_response_ratio(
    builder: PlanBuilder, filling: list[Request], keep_pages: int = 0
) -> list[Request]:
    """Prompts by what their wait is worth to them: highest response ratio first.

    With ``w`` the time since the arrival and ``s`` the predicted time of what is left of the
    prompt, the ratio is ``(w + s) / s`` (Brinch Hansen, 1971); ``w / s`` has the same order. A
    short prompt passes a long one within a step or two. A long one is passed only by prompts that
    waited longer than it in proportion, so its wait is bounded.

    Only prompts that have pages together are put in order. The others stay behind them, oldest
    first: what a younger one takes of the memory, the older one would take back, and what was
    computed would be lost.

    Args:
        builder: The step, with nothing offline taken.
        filling: Online requests with prompt tokens left, oldest first.
        keep_pages: Pages that each request which begins must leave.
    """
    if len(filling) < 2:
        return filling
    page_tokens, predict = builder.page_tokens, builder.model.predict
    pages = builder.pages_left + sum(
        request.device_pages for request in builder.snapshot.offline_running
    )
    ratios: list[tuple[float, Request]] = []
    for request in filling[:MAX_PROMPTS_WAITING]:
        pages -= pages_for(request.fill_tokens, page_tokens) - request.device_pages
        if pages < (0 if request.holds_slot else keep_pages):
            break
        load = StepLoad()
        load.add_chunk(request.remaining_tokens, request.start_tokens)
        waited_s = builder.snapshot.now_s - request.arrival_at_s
        ratios.append((waited_s / max(predict(load), SHORTEST_S), request))
    rest = filling[len(ratios) :]
    ratios.sort(key=lambda pair: -pair[0])
    return [request for _, request in ratios] + rest


# --- Steps bounded by a count of tokens instead of a time: what the baselines do.


def take_all_decode(builder: PlanBuilder, requests: DecodeReady, victims: VictimPool) -> None:
    """Take every decoding request; out of pages, the least important requests make room."""
    ready = builder.untaken(requests)
    for request in ready.requests[builder.decode_run(ready, UNBOUNDED_S) :]:
        if request.rid in builder.taken or builder.decode(request, UNBOUNDED_S):
            continue
        if victims.make_room(request, builder.decode_pages(request)):
            builder.decode(request, UNBOUNDED_S)


def take_prompts(builder: PlanBuilder, requests: Iterable[Request], keep_pages: int) -> None:
    """Take prompt tokens request after request until the executor's chunk or the pages are used up.

    A request without a slot is admitted only if its whole prompt has pages beside ``keep_pages``.
    """
    for request in requests:
        if builder.chunk_left <= 0:
            return
        if request.rid in builder.taken:
            continue
        keep = 0
        if not request.holds_slot:
            keep = keep_pages if builder.snapshot.running or not builder.is_empty else 0
            if pages_for(request.fill_tokens, builder.page_tokens) > builder.pages_left - keep:
                return
        taken = builder.chunk(request, UNBOUNDED_S, keep)
        if taken == 0 and builder.has_decode and not request.can_mix:
            continue  # it waits for a step without decoding requests, those behind it need not
        if taken < request.remaining_tokens:
            return


def unblock(builder: PlanBuilder, requests: Iterable[Request], victims: VictimPool) -> None:
    """Half-filled prompts hold every page and nothing runs: the first displaces the others."""
    if not builder.is_empty:
        return
    for request in requests:
        if request.phase is not Phase.PREFILL or request.rid in builder.taken:
            continue
        tokens = request.start_tokens + min(request.remaining_tokens, builder.chunk_left)
        pages = pages_for(tokens, builder.page_tokens) - request.device_pages
        if victims.make_room(request, pages) and builder.chunk(request, UNBOUNDED_S):
            return


class OnlineFiller:
    """Takes online requests into a step.

    Args:
        cuts: Prompts beside decoding requests are cut to the gap cap; otherwise to the chunk alone.
        ordered: Prompts go by their response ratio; otherwise oldest first.
        late_share: Share of the TTFT target after which a prompt that the gap cap makes late gets
            as much of a step as the decoding requests; infinite never.
        fetches: The policy fetches requests whose KV is on the host; others compute them again.
        growth_tokens: Output tokens for which pages are kept back, for each online request that
            holds a slot, when another begins: without, those that answer take pages from each
            other again and again.
    """

    def __init__(
        self,
        *,
        cuts: bool = False,
        ordered: bool = False,
        late_share: float = math.inf,
        fetches: bool = False,
        growth_tokens: int = 0,
    ) -> None:
        """Start with a step of either kind."""
        self._cuts, self._ordered, self._late_share = cuts, ordered, late_share
        self._fetches = fetches
        self._growth_tokens, self._keep_pages = growth_tokens, 0
        self._prefilled_alone = False
        self._gap_s = 0.0

    def filling(self, builder: PlanBuilder, requests: RequestsByPhase) -> list[Request]:
        """Online requests with prompt tokens left, in the order in which they get them."""
        filling = requests.online_filling(fetches=self._fetches)
        if not self._ordered:
            return filling
        return by_response_ratio(builder, filling, self._growth_pages(builder, requests))

    def take(self, builder: PlanBuilder, requests: RequestsByPhase, victims: VictimPool) -> float:
        """Fill the step; nothing offline may have been taken before.

        Returns:
            Seconds of the decoding requests' current gap that belong to another step: the prompts'
            step before this one, or the decode step after this one. They are not to be harvested.
        """
        filling = self.filling(builder, requests)
        self._keep_pages = self._growth_pages(builder, requests)
        if filling and requests.online_decode and self._must_separate(builder, requests, filling):
            self._prefilled_alone = not self._prefilled_alone
            if self._prefilled_alone:
                decode_s = builder.model.predict(_decode_load(requests.online_decode))
                self._take_prompts(builder, filling, victims, decode_s)
                return decode_s
            filling = []
        else:
            self._prefilled_alone = False
        gap_s, self._gap_s = self._gap_s, 0.0
        take_all_decode(builder, requests.online_decode, victims)
        if filling:
            self._take_prompts(builder, filling, victims, 0.0)
        victims.foresee(requests.online_decode.requests)
        return gap_s

    def may_leave_out(self, requests: RequestsByPhase) -> bool:
        """Whether the next step may be one of offline prompts alone.

        The online requests all decode, and no other step is part of their gap.
        """
        all_decode = len(requests.online_decode.requests) == len(requests.online)
        return all_decode and not requests.online_waiting and self._gap_s == 0.0

    def leave_out(self) -> None:
        """The step is one of offline prompts: it counts towards the gap of the online requests."""
        self._prefilled_alone = True

    def close(self, predicted_s: float) -> None:
        """Note how long the finished step will take."""
        self._gap_s = predicted_s if self._prefilled_alone else 0.0

    def _growth_pages(self, builder: PlanBuilder, requests: RequestsByPhase) -> int:
        return self._growth_tokens * len(requests.online) // builder.page_tokens

    def _take_prompts(
        self,
        builder: PlanBuilder,
        filling: list[Request],
        victims: VictimPool,
        decode_s: float,
    ) -> None:
        self._make_room(builder, filling, victims)
        budget_s = self._prompt_budget_s(builder, filling[0], decode_s)
        for request in filling:
            if request.rid in builder.taken:
                continue
            keep = 0 if request.holds_slot else self._keep_pages
            if builder.chunk_left <= 0 or builder.chunk(request, budget_s, keep) == 0:
                break

    def _prompt_budget_s(self, builder: PlanBuilder, first: Request, decode_s: float) -> float:
        """The gap cap, unless no token of the first prompt fits it or nobody waits for one.

        With ``D`` the time of the decoding requests and ``c`` what a step has for the prompt beside
        them, the prompt takes ``1 + D/c`` times as long as alone, and gaps are ``1 + c/D`` times as
        long. The product is least at ``c = D``. So a prompt that the cap would make late gets at
        least as much of each step as the decoding requests.

        Args:
            builder: The step, with the online decoding requests taken that share it.
            first: The first that has prompt tokens left.
            decode_s: Time of the decode step that follows, if those requests have one of their own.
        """
        alone = not builder.has_decode and decode_s == 0.0
        if alone or not self._cuts:
            return UNBOUNDED_S
        budget_s = builder.snapshot.slo.tbt_s - decode_s
        if self._late_share < math.inf:
            budget_s = max(budget_s, self._even_budget_s(builder, first, budget_s, decode_s))
        return budget_s if builder.chunk_room(first, budget_s) > 0 else UNBOUNDED_S

    def _even_budget_s(
        self, builder: PlanBuilder, request: Request, budget_s: float, decode_s: float
    ) -> float:
        """The budget with ``c = D``, if steps within the given one finish the prompt too late."""
        taken_s = builder.predicted_s()
        decode_s = decode_s or taken_s
        chunk_s = builder.bounded_s(budget_s) - taken_s
        if chunk_s >= decode_s:
            return budget_s
        slo, waited_s = builder.snapshot.slo, builder.snapshot.now_s - request.arrival_at_s
        whole = builder.load.copy()
        whole.add_chunk(request.remaining_tokens, request.start_tokens)
        prompt_s = builder.model.predict(whole) - taken_s
        left_s = self._late_share * slo.ttft_s - waited_s
        if chunk_s > 0.0 and prompt_s * (1.0 + decode_s / chunk_s) <= left_s:
            return budget_s
        return builder.budget_for(taken_s + decode_s)

    def _make_room(self, builder: PlanBuilder, filling: list[Request], victims: VictimPool) -> None:
        """Ask for the pages and slots of as many prompts as one step can hold."""
        tokens_left = builder.chunk_left
        num_pages = num_slots = 0
        for request in filling:
            if tokens_left <= 0:
                break
            tokens = min(request.remaining_tokens, tokens_left)
            tokens_left -= tokens
            num_pages += max(
                0,
                pages_for(request.start_tokens + tokens, builder.page_tokens)
                - request.device_pages,
            )
            keep = 0
            if not request.holds_slot:
                num_slots += 1
                keep = self._keep_pages
            if request.rid in builder.taken or not victims.make_room(
                request, num_pages + keep, num_slots
            ):
                break

    def _must_separate(
        self, builder: PlanBuilder, requests: RequestsByPhase, filling: list[Request]
    ) -> bool:
        """Whether the oldest prompt and the decoding requests cannot or should not share a step."""
        oldest = filling[0]
        if not builder.snapshot.limits.can_mix or not oldest.can_mix:
            return True
        if not requests.online_decode.can_mix:
            return True
        decode = _decode_load(requests.online_decode)
        prompt, mixed = StepLoad(), decode.copy()
        num_tokens = min(oldest.remaining_tokens, builder.chunk_left)
        start_tokens = oldest.start_tokens
        prompt.add_chunk(num_tokens, start_tokens)
        mixed.add_chunk(num_tokens, start_tokens)
        predict = builder.model.predict
        return predict(mixed) > predict(decode) + predict(prompt)


def _decode_load(ready: DecodeReady) -> StepLoad:
    return with_requests(StepLoad(), ready, len(ready.requests))
