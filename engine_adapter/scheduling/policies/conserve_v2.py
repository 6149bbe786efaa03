"""ConServe v2: token-level harvesting (paper v2, section 4 and Algorithms 1 and 2).

Each step, in this order:

1. every online decode row;
2. online prompt tokens;
3. as many offline decode rows and prompt tokens as still fit the TBT target, or the share of it
   that keeps 19 of 20 gaps in time (:mod:`~engine_adapter.scheduling.budget`);
4. without any online request, offline work alone, filled for throughput instead of latency.

Offline rows left out are parked with their KV. Pages for online rows come from parked offline
rows, checkpointed ones first. What differs from the printed algorithm, and why:

- online decode rows are never held back by the budget: leaving one out breaks its own TBT;
- online prompts outgrow the TBT budget when their TTFT target would be missed otherwise
  (:func:`~engine_adapter.scheduling.budget.online_prefill_budget_s`);
- online prompts share a step only if first tokens come sooner by it
  (:mod:`~engine_adapter.scheduling.online`);
- step 3 also leaves the first tokens that wait for the step their time
  (:func:`~engine_adapter.scheduling.budget.first_token_slack_s`): the TBT target may be longer
  than what is left of a TTFT target;
- a step of offline work alone that a stop would throw away is only so long that the arrivals of
  late waste little of it (:func:`~engine_adapter.scheduling.budget.offline_only_budget_s`);
- offline prompts that cannot share a step with the online decode rows have one of their own in
  turn (:mod:`~engine_adapter.scheduling.queue`), as online prompts have;
- step 3 picks decode rows or prompt tokens, whichever harvests more compute: on executors where
  mixing has its own price the cheaper filling depends on context lengths.
"""

from __future__ import annotations

from engine_adapter.scheduling.budget import (
    HarvestPrice,
    OnlineArrivals,
    TbtGuard,
    beside_online_budget_s,
    first_token_slack_s,
    online_prefill_budget_s,
)
from engine_adapter.scheduling.builder import UNARMED, PlanBuilder
from engine_adapter.scheduling.harvest import Harvester
from engine_adapter.scheduling.latency import LatencyModel
from engine_adapter.scheduling.memory import VictimPool, fetch_online, order_checkpoints
from engine_adapter.scheduling.online import OnlineFiller
from engine_adapter.scheduling.plan import (
    Arrival,
    Decision,
    FinishedStep,
    RunningStep,
    SafepointMode,
    Safepoints,
    StepPlan,
)
from engine_adapter.scheduling.policies.base import PolicyBase, online_cannot_wait
from engine_adapter.scheduling.policies.settings import PolicySettings
from engine_adapter.scheduling.queue import OfflineOrder, RowsByRole, Turns
from engine_adapter.scheduling.snapshot import Snapshot


class ConserveV2(PolicyBase):
    """Token-level co-serving with parking, row drop and incremental checkpoints."""

    name = "conserve_v2"

    def __init__(self, model: LatencyModel, settings: PolicySettings | None = None) -> None:
        """Bind the latency model and the knobs."""
        super().__init__(model, settings)
        self._order = OfflineOrder(self.settings.batch_min_share)
        self._turns = Turns()
        self._arrivals = OnlineArrivals(self.settings.typical_online_tokens)
        self._online = OnlineFiller(online_prefill_budget_s, soonest=True, fetches=True)
        self._price = HarvestPrice(self.settings.min_harvest)
        self.tbt_guard = TbtGuard()
        self._tbt_s = 0.0

    def plan(self, snapshot: Snapshot) -> StepPlan:
        """Algorithm 1."""
        self._arrivals.update(snapshot)
        self._tbt_s = snapshot.slo.tbt_s
        builder = self._builder(snapshot)
        rows = RowsByRole.of(snapshot)
        victims = VictimPool(builder, rows.offline, rows.online)
        self._price.update(snapshot, has_online=rows.has_online)
        harvester = Harvester(
            builder,
            rows,
            victims,
            self._order,
            self._turns,
            self.settings,
            self._arrivals.prompt_tokens,
            self._price.value,
            self._arrivals.per_s,
        )
        if rows.has_online:
            budget_s, online_s = self._fill_beside_online(builder, rows, victims, harvester)
        else:
            budget_s, online_s = harvester.fill_alone(), 0.0
        harvester.order_prefetches()
        if self.settings.checkpoints:
            order_checkpoints(builder, rows.offline, rows.online, self.settings)
        return builder.build(budget_s, self._safepoints(builder, online_s))

    def _fill_beside_online(
        self, builder: PlanBuilder, rows: RowsByRole, victims: VictimPool, harvester: Harvester
    ) -> tuple[float, float]:
        """Steps 1 to 3; returns the bound used and the predicted time of the online rows alone."""
        online = self._online
        bound_s = beside_online_budget_s(builder.snapshot.slo, self.tbt_guard.share)
        if online.may_leave_out(rows) and harvester.fill_turn(bound_s):
            online.leave_out()
            online.close(builder.predicted_s())
            return bound_s, 0.0
        gap_s = online.take(builder, rows, victims)
        fetch_online(builder, rows)
        builder.hold_back()
        slack_s = first_token_slack_s(builder, rows.online_filling(fetches=True))
        budget_s = min(bound_s - gap_s, slack_s)
        online_s = builder.predicted_s()
        harvester.fill_beside_online(budget_s)
        online.close(builder.predicted_s())
        return budget_s, online_s

    def observe(self, step: FinishedStep) -> None:
        """Follow predictions and gaps."""
        super().observe(step)
        self.tbt_guard.observe(step, self._tbt_s)

    def at_arrival(self, arrival: Arrival, step: RunningStep) -> Decision:
        """Algorithm 2."""
        if online_cannot_wait(self.model, self.drift, arrival, step):
            return Decision.STOP_AT_NEXT_SAFEPOINT
        return Decision.CONTINUE

    def _safepoints(self, builder: PlanBuilder, online_s: float) -> Safepoints:
        """Arm the step if a stop would save more than the way to the next safepoint.

        Args:
            builder: The step.
            online_s: Predicted time of its online rows alone.
        """
        if not self.settings.safepoints or builder.num_offline == 0:
            return UNARMED
        limits = builder.snapshot.limits
        interval_s = self._interval_s(builder.snapshot)
        if builder.predicted_s() - online_s <= interval_s:
            return UNARMED
        if builder.num_online:
            droppable = limits.row_drop and (builder.has_chunks or limits.decode_safepoints)
            if self.settings.drop_mixed and droppable:
                return Safepoints(SafepointMode.DROP, interval_s)
            return UNARMED
        if not builder.has_chunks and not limits.decode_safepoints:
            return UNARMED
        if builder.has_chunks and not limits.prefill_safepoints:
            return UNARMED
        return Safepoints(SafepointMode.ABORT, interval_s)
