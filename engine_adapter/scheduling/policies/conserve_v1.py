"""ConServe v1: SLO-aware scheduling with whole-batch preemption (v1, Algorithms 1 and 2).

The budget of a step is the TBT target when an online request decodes, else the TTFT target. Online
requests are admitted as if offline work were not there; offline requests get what is left of the
budget, decoding requests before prompts. Without online work the step is filled without a budget
and its safepoints are armed: an arrival that cannot wait aborts the whole step. Mixed steps are
never armed. KV is checkpointed while requests run.

One deviation: a request that falls out of the budget keeps its pages until somebody needs them,
instead of dropping those with a checkpoint at once. The order in which pages are reclaimed is the
paper's, and nothing has to be fetched back when nobody needed them.
"""

from __future__ import annotations

from engine_adapter.scheduling.builder import UNARMED, PlanBuilder
from engine_adapter.scheduling.harvest import Harvester
from engine_adapter.scheduling.latency import LatencyModel, StepTimes
from engine_adapter.scheduling.memory import VictimPool, fetch_online, order_checkpoints
from engine_adapter.scheduling.online import OnlineArrivals, OnlineFiller
from engine_adapter.scheduling.plan import (
    Arrival,
    Decision,
    RunningStep,
    SafepointMode,
    Safepoints,
    StepPlan,
)
from engine_adapter.scheduling.policies.base import PolicyBase, online_cannot_wait
from engine_adapter.scheduling.policies.settings import PolicySettings
from engine_adapter.scheduling.queue import OfflineOrder, RequestsByPhase, StepAlternation
from engine_adapter.scheduling.snapshot import Snapshot


def step_budget_s(builder: PlanBuilder, gap_s: float) -> float:
    """Algorithm 1, line 1: the TBT target if an online request decodes, else the TTFT target.

    Args:
        builder: The step, with its online requests taken.
        gap_s: Part of the decoding requests' gap that another step takes.
    """
    slo = builder.snapshot.slo
    return slo.tbt_s - gap_s if builder.has_decode or gap_s else slo.ttft_s


class ConserveV1(PolicyBase):
    """Iteration-level composition; safepoints in pure-offline steps only."""

    name = "conserve_v1"

    def __init__(self, model: LatencyModel, settings: PolicySettings | None = None) -> None:
        """Bind the latency model and the knobs."""
        super().__init__(model, settings)
        # As printed: budgets and arrivals are judged by the profile as it was measured.
        self.steps = StepTimes(slowdown=False, quantile=False)
        self.model = model
        self._order = OfflineOrder(self.settings.batch_min_share)
        self._turns = StepAlternation()
        self._arrivals = OnlineArrivals(self.settings.typical_online_tokens)
        self._online = OnlineFiller(cuts=True, fetches=True)

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
        may_leave_out = requests.has_online and self._online.may_leave_out(requests)
        if may_leave_out and harvester.fill_turn(snapshot.slo.tbt_s):
            budget_s = snapshot.slo.tbt_s
            self._online.leave_out()
            self._online.close(builder.predicted_s())
        elif requests.has_online:
            gap_s = self._online.take(builder, requests, victims)
            fetch_online(builder, requests)
            builder.hold_back()
            budget_s = step_budget_s(builder, gap_s)
            harvester.fill_beside_online(budget_s)
            self._online.close(builder.predicted_s())
        else:
            budget_s = harvester.fill_alone()
        harvester.order_restores()
        if self.settings.checkpoints:
            order_checkpoints(builder, requests.offline, requests.online, self.settings)
        return builder.build(budget_s, self._safepoints(builder))

    def at_arrival(self, arrival: Arrival, step: RunningStep) -> Decision:
        """Algorithm 2; only pure-offline steps carry safepoints."""
        if online_cannot_wait(self.model, self.steps, arrival, step):
            return Decision.STOP_AT_NEXT_SAFEPOINT
        return Decision.CONTINUE

    def _safepoints(self, builder: PlanBuilder) -> Safepoints:
        if not self.settings.safepoints or builder.num_online or not builder.num_offline:
            return UNARMED
        limits = builder.snapshot.limits
        if not builder.has_chunks and not limits.decode_safepoints:
            return UNARMED
        if builder.has_chunks and not limits.prefill_safepoints:
            return UNARMED
        return Safepoints(SafepointMode.ABORT, self._interval_s(builder.snapshot))
