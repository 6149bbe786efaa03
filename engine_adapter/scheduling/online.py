"""Gives online requests their tokens, reclaiming from offline requests what they lack.

Decoding requests first, all of them, then prompts from the oldest on. Where the executor cannot mix
the two, or one mixed step is predicted to be slower than one of each, steps alternate, so that
neither starves the other. Prompts may wait for a step of their own where sharing one would cost
those in it more than it saves the others: a step of two prompts ends for both when both are done.
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
        fetches: The policy fetches requests whose KV is on the host; others compute them again.
        growth_tokens: Output tokens for which pages are kept back, for each online request that
            holds a slot, when another begins: without, those that answer take pages from each
            other again and again.
    """

    def __init__(
        self, *, cuts: bool = False, fetches: bool = False, growth_tokens: int = 0
    ) -> None:
        """Start with a step of either kind."""
        self._cuts, self._fetches = cuts, fetches
        self._growth_tokens, self._keep_pages = growth_tokens, 0
        self._prefilled_alone = False
        self._gap_s = 0.0

    def take(self, builder: PlanBuilder, requests: RequestsByPhase, victims: VictimPool) -> float:
        """Fill the step; nothing offline may have been taken before.

        Returns:
            Seconds of the decoding requests' current gap that belong to another step: the prompts'
            step before this one, or the decode step after this one. They are not to be harvested.
        """
        filling = requests.online_filling(fetches=self._fetches)
        self._keep_pages = self._growth_tokens * len(requests.online) // builder.page_tokens
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

    def _prompt_budget_s(self, builder: PlanBuilder, oldest: Request, decode_s: float) -> float:
        """The gap cap, unless no token of the oldest prompt fits it or nobody waits for one.

        Args:
            builder: The step, with the online decoding requests taken that share it.
            oldest: The first that has prompt tokens left.
            decode_s: Time of the decode step that follows, if those requests have one of their own.
        """
        alone = not builder.has_decode and decode_s == 0.0
        if alone or not self._cuts:
            return UNBOUNDED_S
        budget_s = builder.snapshot.slo.tbt_s - decode_s
        return budget_s if builder.chunk_room(oldest, budget_s) > 0 else UNBOUNDED_S

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
