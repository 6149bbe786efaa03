"""Asks the policy, checks its answer, and pairs each outcome with its plan.

Shared by SGLang and by the engine in memory, so that a policy that cheats fails in both with the
same sentence. Outcomes may come one step late: ``begin`` and ``end`` carry step ids.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from engine_adapter.core.arrival import Arrival, Decision, RunningStep
from engine_adapter.core.outcome import FinishedStep, Outcome
from engine_adapter.core.plan import StepPlan
from engine_adapter.core.snapshot import Snapshot
from engine_adapter.latency.step_log import StepLog
from engine_adapter.plan_check import PlanRejected, check_plan
from engine_adapter.policies.base import SchedulingPolicy

__all__ = ["CheckedPlan", "Driver", "PlanRejected"]


@dataclass(frozen=True, slots=True)
class CheckedPlan:
    """A plan that keeps every promise of its snapshot."""

    step_id: int
    plan: StepPlan


class Driver:
    """Runs one policy against one port.

    Args:
        policy: Decides the steps.
        max_pending: Plans that may wait for their outcome; older ones are forgotten.

    Attributes:
        policy: The policy that plans now.
        step_log: Predicted and measured times of the newest steps.
    """

    def __init__(self, policy: SchedulingPolicy, max_pending: int = 8) -> None:
        """Start with no step begun."""
        self.policy = policy
        self.step_log = StepLog()
        self._max_pending = max_pending
        self._pending: dict[int, StepPlan] = {}
        self._last_step_id = -1

    def begin(self, snapshot: Snapshot) -> CheckedPlan:
        """Plan the next step.

        Raises:
            ValueError: If the step id does not increase.
            PlanRejected: If the plan breaks a rule; nothing has been applied then.
        """
        if snapshot.step_id <= self._last_step_id:
            raise ValueError(
                f"step {snapshot.step_id} begins after step {self._last_step_id}: ids must increase"
            )
        plan = self.policy.plan(snapshot)
        check_plan(plan, snapshot)
        self._last_step_id = snapshot.step_id
        if not plan.is_empty:
            self._pending[plan.step_id] = plan
            while len(self._pending) > self._max_pending:
                del self._pending[min(self._pending)]
        return CheckedPlan(plan.step_id, plan)

    def arrival(self, arrival: Arrival, step: RunningStep | None) -> Decision:
        """Ask what the running step is told; called on the monitor's thread."""
        if step is None:
            return Decision.CONTINUE
        return self.policy.at_arrival(arrival, step)

    def end(self, step_id: int, outcome: Outcome) -> FinishedStep | None:
        """Report what a step did; None if the step is not known (any more).

        Raises:
            ValueError: If the outcome belongs to another step.
        """
        if outcome.step_id != step_id:
            raise ValueError(f"outcome of step {outcome.step_id} reported for step {step_id}")
        plan = self._pending.pop(step_id, None)
        if plan is None:
            return None
        finished = FinishedStep(plan, outcome)
        if math.isfinite(outcome.measured_s):
            self.policy.observe(finished)
            self.step_log.add(finished)
        return finished

    def switch(self, policy: SchedulingPolicy) -> None:
        """Go on with another policy; plans already begun are reported to the new one."""
        self.policy = policy
