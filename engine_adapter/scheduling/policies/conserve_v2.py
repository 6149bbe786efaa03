"""ConServe v2 with deadlines (paper v2, section 4 and Algorithms 1 and 2; docs/scheduler.md).

Every online request has a deadline for its next token: the TTFT target for the first, then the gap
cap and, where there is a target for it, the pace. Each step, in this order:

1. every online decoding request;
2. online prompt tokens, highest response ratio first, cut to the gap cap; a prompt that the cap
   would make late gets as much of the step as the decoding requests;
3. offline decoding requests and prompt tokens, as long as the predicted end of the step, at the
   quantile of measured over predicted time, is before the earliest deadline;
4. without any online request, offline work alone, filled for throughput.

An arrival stops a step if its own first token would be late otherwise. Where such a step costs more
than another, since it leaves captured graphs and the device waits for its launch, it is filled as
one that can be stopped or as a short one, whichever takes more. Offline requests left out
are parked with their KV. Pages for online requests come from parked offline requests, checkpointed
ones first. Offline prompts that cannot share a step with the online decoding requests have one of
their own in turn, as online prompts have.
"""

from __future__ import annotations

import math

from engine_adapter.scheduling.builder import UNARMED, PlanBuilder, with_requests
from engine_adapter.scheduling.harvest import Harvester
from engine_adapter.scheduling.latency import LatencyModel, StepLoad
from engine_adapter.scheduling.memory import VictimPool, fetch_online, order_checkpoints
from engine_adapter.scheduling.online import (
    OnlineArrivals,
    OnlineFiller,
    first_token_slack_s,
    next_token_slack_s,
)
from engine_adapter.scheduling.plan import (
    Arrival,
    Decision,
    RunningStep,
    SafepointMode,
    Safepoints,
    StepPlan,
)
from engine_adapter.scheduling.policies.base import PolicyBase, online_cannot_wait
from engine_adapter.scheduling.policies.settings import LEVEL_RULES, PolicySettings
from engine_adapter.scheduling.queue import OfflineOrder, RequestsByPhase, StepAlternation
from engine_adapter.scheduling.snapshot import Snapshot

SAFEPOINT_INTERVAL_S = 0.004
"""An arrival has the device some milliseconds after it asked; a look costs microseconds."""

WORTH_A_STOP_S = 0.010
"""A pass that may be stopped is launched layer by layer: for less than this it is not worth it."""


class ConserveV2(PolicyBase):
    """Token-level co-serving with parking, request drop and incremental checkpoints."""

    name = "conserve_v2"

    def __init__(self, model: LatencyModel, settings: PolicySettings | None = None) -> None:
        """Bind the latency model and the knobs."""
        super().__init__(model, settings)
        self._order = OfflineOrder(self.settings.batch_min_share)
        self._turns = StepAlternation()
        self._arrivals = OnlineArrivals(self.settings.typical_online_tokens)
        growth_tokens = self.settings.growth_tokens
        late_share = self.settings.ttft_planning_share
        self._online = OnlineFiller(
            cuts=True,
            ordered=self.has("ratio_order"),
            late_share=late_share if self.has("even_share") else math.inf,
            fetches=True,
            growth_tokens=growth_tokens,
        )

    def plan(self, snapshot: Snapshot) -> StepPlan:
        """Algorithm 1."""
        self._arrivals.update(snapshot)
        builder = self._builder(snapshot)
        requests = RequestsByPhase.of(snapshot)
        victims = VictimPool(builder, requests.offline, requests.online)
        harvester = Harvester(
            builder,
            requests,
            victims,
            self._order,
            self._turns,
            self.settings,
            self._arrivals.prompt_tokens,
        )
        if requests.has_online:
            budget_s, online_s = self._fill_beside_online(builder, requests, victims, harvester)
        else:
            budget_s, online_s = harvester.fill_alone(), 0.0
        harvester.order_restores()
        if self.settings.checkpoints:
            order_checkpoints(
                builder, requests.offline, requests.online, self.settings, for_slots=True
            )
        return builder.build(budget_s, self._safepoints(builder, online_s))

    def _fill_beside_online(
        self,
        builder: PlanBuilder,
        requests: RequestsByPhase,
        victims: VictimPool,
        harvester: Harvester,
    ) -> tuple[float, float]:
        """Steps 1 to 3; returns the bound and the predicted time of the online requests alone."""
        online = self._online
        bound_s = next_token_slack_s(builder, requests.online_decode)
        rule = LEVEL_RULES[self.settings.level]
        may_wait = rule.own_steps and online.may_leave_out(requests)
        if may_wait and harvester.fill_turn(bound_s):
            online.leave_out()
            online.close(builder.predicted_s())
            return bound_s, 0.0
        gap_s = online.take(builder, requests, victims)
        fetch_online(builder, requests)
        builder.hold_back()
        budget_s = bound_s - gap_s
        if self.has("first_token"):
            filling = online.filling(builder, requests)
            share = self.settings.ttft_planning_share
            budget_s = min(budget_s, first_token_slack_s(builder, filling, share))
        online_s = builder.predicted_s()
        budget_s = self._choose_executor(builder, budget_s, online_s)
        harvester.fill_beside_online(
            min(budget_s, self._level_budget_s(builder, requests, budget_s))
        )
        online.close(builder.predicted_s())
        return budget_s, online_s

    def _choose_executor(self, builder: PlanBuilder, budget_s: float, online_s: float) -> float:
        """Fill the step as one that can be stopped, or as a short one that cannot.

        The first waits for the results of the step before and runs outside captured graphs. It is
        the one that fits more prompt tokens, and there is no choice where a stop costs neither.

        Returns:
            The budget of such a step.
        """
        gap_s = builder.snapshot.armed_gap_s
        if not (self.settings.safepoints and self._drops(builder)):
            return budget_s
        if not (gap_s or builder.snapshot.limits.eager_modes):
            return budget_s
        model, most = builder.model, builder.snapshot.limits.max_chunk_tokens
        armed_s = builder.bounded_s(budget_s - gap_s)
        short_s = min(builder.bounded_s(budget_s), online_s + self._worth_a_stop_s())
        eager = model.eager if builder.runs_eager(SafepointMode.DROP) else model
        if model.max_tokens(builder.load, 0, most, short_s) >= eager.max_tokens(
            builder.load, 0, most, armed_s
        ):
            builder.is_short = True
            return min(budget_s, builder.budget_for(short_s))
        if eager is not model:
            builder.run_eager()
        return budget_s - gap_s

    def _drops(self, builder: PlanBuilder) -> bool:
        return self.settings.drop_mixed and builder.snapshot.limits.request_drop

    def _worth_a_stop_s(self) -> float:
        return self.settings.safepoint_interval_s or WORTH_A_STOP_S

    def _level_budget_s(
        self, builder: PlanBuilder, requests: RequestsByPhase, budget_s: float
    ) -> float:
        """What the level leaves of a budget for the step."""
        rule = LEVEL_RULES[self.settings.level]
        if not rule.beside_prompts and builder.has_chunks:
            return 0.0
        if rule.longest < math.inf:
            return builder.budget_for(rule.longest * builder.predicted_s())
        if rule.rate_share >= 1.0:
            return budget_s
        ready = requests.online_decode
        decode = with_requests(StepLoad(), ready, len(ready.requests))
        efficient_s = efficient_step_s(
            builder.model,
            decode,
            builder.bounded_s(budget_s),
            rule.rate_share,
            builder.snapshot.limits.max_chunk_tokens,
        )
        return builder.budget_for(efficient_s)

    def at_arrival(self, arrival: Arrival, step: RunningStep) -> Decision:
        """Algorithm 2."""
        share = self.settings.ttft_planning_share
        if online_cannot_wait(self.model, self.steps, arrival, step, share):
            return Decision.STOP_AT_NEXT_SAFEPOINT
        return Decision.CONTINUE

    def _safepoints(self, builder: PlanBuilder, online_s: float) -> Safepoints:
        """Arm the step if a stop would save enough.

        Args:
            builder: The step.
            online_s: Predicted time of its online requests alone.
        """
        if not self.settings.safepoints or builder.num_offline == 0:
            return UNARMED
        limits = builder.snapshot.limits
        interval_s = self.settings.safepoint_interval_s or SAFEPOINT_INTERVAL_S
        if builder.predicted_s() - online_s <= self._worth_a_stop_s():
            return UNARMED
        if builder.num_online:
            stoppable = builder.has_chunks or limits.decode_safepoints
            if self._drops(builder) and stoppable and not builder.is_short:
                return Safepoints(SafepointMode.DROP, interval_s)
            return UNARMED
        if not builder.has_chunks and not limits.decode_safepoints:
            return UNARMED
        if builder.has_chunks and not limits.prefill_safepoints:
            return UNARMED
        return Safepoints(SafepointMode.ABORT, interval_s)


# --- The shortest step that is long enough for offline work.

# Exact for a step time that is linear in its tokens, and within some per cent for a bent one.
CHORDS = 3


def efficient_step_s(
    model: LatencyModel, load: StepLoad, bound_s: float, rate_share: float, most_tokens: int
) -> float:
    """Length of the shortest step whose offline rate is high enough.

    Args:
        model: Predicts steps.
        load: The online decoding requests of the step.
        bound_s: Length of the full step.
        rate_share: Share of the full step's rate that is enough.
        most_tokens: Prompt tokens that a step may have.

    Returns:
        At most `bound_s`; `bound_s` itself where nothing fits beside the load.
    """
    if rate_share >= 1.0 or not load.decode_requests:
        return bound_s
    full_tokens = model.max_tokens(load, 0, most_tokens, bound_s)
    if full_tokens <= 0:
        return bound_s
    full_s = _with_tokens_s(model, load, full_tokens)
    enough = rate_share * full_tokens / full_s

    # The rate is enough where T(n) - n / enough <= 0. That is convex, so the chord from one token
    # to a step that is long enough crosses zero at a shorter one that is long enough too.
    low_s, num_tokens, step_s = _with_tokens_s(model, load, 1), full_tokens, full_s
    above = low_s - 1.0 / enough
    for _ in range(CHORDS):
        below = num_tokens / enough - step_s
        if above <= 0.0 or below <= 0.0:
            break
        num_tokens = 1 + math.ceil((num_tokens - 1) * above / (above + below))
        step_s = _with_tokens_s(model, load, num_tokens)
    return min(bound_s, step_s)


def _with_tokens_s(model: LatencyModel, load: StepLoad, num_tokens: int) -> float:
    mixed = load.copy()
    mixed.add_chunk(num_tokens, 0)
    return model.predict(mixed)
