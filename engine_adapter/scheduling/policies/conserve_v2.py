"""ConServe v2 with deadlines (paper v2, section 4 and Algorithms 1 and 2; docs/scheduler.md).

Every online request has a deadline for its next token: the TTFT target for the first, then the gap
cap and, where there is a target for it, the pace. Each step, in this order:

1. every online decoding request;
2. online prompt tokens, highest response ratio first, cut to the gap cap; a prompt that the cap
   would make late gets as much of the step as the decoding requests;
3. offline decoding requests and prompt tokens, as long as the predicted end of the step, at the
   quantile of measured over predicted time, is before the earliest deadline;
4. without any online request, offline work alone, filled for throughput.

An arrival stops a step if its own first token would be late otherwise. Offline requests left out
are parked with their KV. Pages for online requests come from parked offline requests, checkpointed
ones first. Offline prompts that cannot share a step with the online decoding requests have one of
their own in turn, as online prompts have.
"""

from __future__ import annotations

import math

from engine_adapter.scheduling.builder import UNARMED, PlanBuilder, with_requests
from engine_adapter.scheduling.harvest import Harvester
from engine_adapter.scheduling.latency import LatencyModel, StepLoad, efficient_step_s
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
        harvester.fill_beside_online(
            min(budget_s, self._level_budget_s(builder, requests, budget_s))
        )
        online.close(builder.predicted_s())
        return budget_s, online_s

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
        given_s = self.settings.safepoint_interval_s
        interval_s = given_s or SAFEPOINT_INTERVAL_S
        if builder.predicted_s() - online_s <= (given_s or WORTH_A_STOP_S):
            return UNARMED
        if builder.num_online:
            droppable = limits.request_drop and (builder.has_chunks or limits.decode_safepoints)
            if self.settings.drop_mixed and droppable:
                return Safepoints(SafepointMode.DROP, interval_s)
            return UNARMED
        if not builder.has_chunks and not limits.decode_safepoints:
            return UNARMED
        if builder.has_chunks and not limits.prefill_safepoints:
            return UNARMED
        return Safepoints(SafepointMode.ABORT, interval_s)
