"""The driver as the scheduler uses it: which policy, with which model, and what if it errs."""

from __future__ import annotations

import logging
from dataclasses import replace

from engine_adapter.runtime_settings import RuntimeSettings
from engine_adapter.scheduling.driver import Driver, PlanRejected
from engine_adapter.scheduling.latency import Coefficients, LatencyModel, PolynomialModel
from engine_adapter.scheduling.plan import Arrival, Decision, Outcome, RunningStep, StepPlan
from engine_adapter.scheduling.policies.base import PolicyBase, SchedulingPolicy
from engine_adapter.scheduling.policies.registry import LEVELLED, UNPROFILED_POLICY, create_policy
from engine_adapter.scheduling.policies.settings import Level, PolicySettings
from engine_adapter.scheduling.snapshot import DecodeReady, Snapshot
from engine_adapter.scheduling.targets import Slo
from engine_adapter.sglang.counters import Counters

logger = logging.getLogger(__name__)
# Until steps can be predicted, they are short and of one kind: prompt chunks of this size at most,
# never beside decoding requests, which some executors (a CPU's) pay for with seconds. Offline
# requests run while there is no chat.
TOKENS_WHILE_MEASURING = 128
ROOM_TURN_S, ROOM_EVERY_S = 180.0, 900.0
"""So long no offline request is admitted while the measurement wants room, and how often again."""


class Planner:
    """Runs the chosen policy, and a plain one while there is no profile yet.

    Attributes:
        driver: Asks and checks the policy.
    """

    def __init__(
        self,
        settings: RuntimeSettings,
        counters: Counters,
        model: LatencyModel,
        *,
        measuring: bool,
    ) -> None:
        """Start with the chosen policy, or with the plain one while the profile is measured.

        Raises:
            ValueError: If there is no policy of that name.
        """
        self._settings = settings
        self._counters = counters
        self._policy_settings = replace(
            PolicySettings(),
            safepoints=settings.safepoints,
            checkpoints=settings.checkpoints,
            safepoint_interval_s=settings.safepoint_interval_s,
            ttft_planning_share=settings.ttft_planning_share,
            level=settings.level,
        )
        chosen = create_policy(settings.policy, model, self._policy_settings)
        self.driver = Driver(chosen)
        self._measuring = measuring
        if measuring:
            self.driver.switch(self._plain(model))
        self._fallback = Driver(self._plain(model))
        self._making_room_since_s: float | None = None

    @property
    def policy_name(self) -> str:
        """Policy that plans at the moment."""
        return self.driver.policy.name

    @property
    def level(self) -> Level | None:
        """How much of chat's pace offline work may take; none: the chosen policy has no levels."""
        return self._policy_settings.level if self._settings.policy == LEVELLED else None

    def use_level(self, level: Level) -> None:
        """Plan at another level from the next step on; what the policy has learned stays."""
        self._policy_settings = replace(self._policy_settings, level=level)
        policy = self.driver.policy
        if isinstance(policy, PolicyBase):
            policy.use_level(level)

    @property
    def tbt_share(self) -> float:
        """Share of the TBT target that steps beside online requests are filled to."""
        steps = getattr(self.driver.policy, "steps", None)
        share = self._settings.slo(Slo(1.0, 1.0)).tbt_share
        return 1.0 if steps is None else 1.0 / float(steps.quantile(share))

    @property
    def slowdown(self) -> float:
        """What steps take now, over what the profile says of them; 1 if it is not followed."""
        steps = getattr(self.driver.policy, "steps", None)
        return 1.0 if steps is None else float(steps.slowdown)

    def use(self, policy: SchedulingPolicy) -> None:
        """Plan with another policy from the next step on."""
        self._measuring = False
        self.driver.switch(policy)

    def use_model(self, model: LatencyModel) -> None:
        """A profile is there: plan with the chosen policy from the next step on."""
        self.use(create_policy(self._settings.policy, model, self._policy_settings))
        self._fallback = Driver(self._plain(model))

    def begin(self, snapshot: Snapshot, *, make_room: bool = False) -> StepPlan:
        """A plan that passed the check.

        A plan that breaks a rule, or an error, is a fault of the policy: it is logged and counted,
        and the engine goes on with the plain policy for that step.

        Args:
            snapshot: The state to plan from.
            make_room: The measurement of the profile wants slots and pages that offline requests
                hold: requests that run may end, and none is admitted for a while.
        """
        if self._measuring:
            snapshot = replace(snapshot, limits=replace(snapshot.limits, can_mix=False))
            if snapshot.online_running or snapshot.online_waiting:
                snapshot = _online_alone(snapshot)
            if make_room and self._is_turn_for_room(snapshot.now_s):
                snapshot = replace(snapshot, offline_waiting=())
        try:
            return self.driver.begin(snapshot).plan
        except PlanRejected as rejected:
            self._counters.rejected_plans += 1
            logger.error("%s: %s", self.policy_name, rejected)
        except Exception as error:
            logger.exception("%s cannot plan", self.policy_name)
            self._note(error)
        try:
            return self._fallback.begin(snapshot).plan
        except PlanRejected as rejected:
            logger.error("%s: %s", UNPROFILED_POLICY, rejected)
        except Exception as error:
            logger.exception("%s cannot plan", UNPROFILED_POLICY)
            self._note(error)
        return StepPlan(step_id=snapshot.step_id)  # nothing runs; the next snapshot differs

    def at_arrival(self, arrival: Arrival, step: RunningStep) -> Decision:
        """Whether the running step stops; runs on the monitor's thread."""
        return self.driver.arrival(arrival, step)

    def end(self, outcome: Outcome) -> None:
        """Report what a step did."""
        try:
            self.driver.end(outcome.step_id, outcome)
        except Exception as error:
            logger.exception("%s cannot take a report in", self.policy_name)
            self._note(error)

    def _note(self, error: Exception) -> None:
        self._counters.policy_errors += 1
        self._counters.last_policy_error = f"{self.policy_name}: {type(error).__name__}: {error}"

    def _is_turn_for_room(self, now_s: float) -> bool:
        """A measurement that cannot end must not cost the batches more than its turns."""
        if self._making_room_since_s is None:
            self._making_room_since_s = now_s
        return (now_s - self._making_room_since_s) % ROOM_EVERY_S < ROOM_TURN_S

    def _plain(self, model: LatencyModel) -> SchedulingPolicy:
        settings = replace(self._policy_settings, token_budget=TOKENS_WHILE_MEASURING)
        return create_policy(UNPROFILED_POLICY, model, settings)


def _online_alone(snapshot: Snapshot) -> Snapshot:
    """Offline requests keep what they hold and compute nothing: what that costs chat is unknown."""
    nobody = DecodeReady([], snapshot.resources.page_tokens)
    return replace(snapshot, offline_waiting=(), offline_ready=nobody)


def model_before_profile() -> PolynomialModel:
    """A guess nobody relies on: the plain policy runs until there is a profile."""
    guess = Coefficients(1e-3, 0.0, 1e-6, 0.0, 1e-3, 2e-2)
    return PolynomialModel(decode=guess, prefill=guess, mixed=guess)
