"""The protocol every policy keeps to, and what most of them share.

A policy has three methods and no state but its own. It reads no clock, no file, no random
number: the same snapshots and outcomes give the same plans. ``at_arrival`` runs on the monitor's
thread while a step runs, so it touches only its arguments and the latency model.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from engine_adapter.scheduling.builder import PlanBuilder
from engine_adapter.scheduling.latency import CalibratedModel, LatencyModel, StepLoad, StepTimes
from engine_adapter.scheduling.plan import (
    Arrival,
    Decision,
    FinishedStep,
    RunningStep,
    SafepointMode,
    StepPlan,
)
from engine_adapter.scheduling.policies.settings import Level, PolicySettings
from engine_adapter.scheduling.request import RequestClass
from engine_adapter.scheduling.snapshot import Snapshot


class SchedulingPolicy(Protocol):
    """Decides what each step computes."""

    name: str

    def plan(self, snapshot: Snapshot) -> StepPlan:
        """Decide the next step."""
        ...

    def at_arrival(self, arrival: Arrival, step: RunningStep) -> Decision:
        """Decide whether the running step stops for this arrival."""
        ...

    def observe(self, step: FinishedStep) -> None:
        """Take in what a step really did."""
        ...


class PolicyBase:
    """Settings, model, step times and the arrival rule shared by the policies of this package."""

    name = "base"
    expects_lengths = False
    """Whether the engine shall expect the length of each answer for it."""

    def __init__(self, model: LatencyModel, settings: PolicySettings | None = None) -> None:
        """Bind the latency model and the knobs."""
        self.settings = settings or PolicySettings()
        self.steps = StepTimes(slowdown=self.has("slowdown"), quantile=self.has("quantile"))
        self.model: LatencyModel = CalibratedModel(model, self.steps)

    def use_level(self, level: Level) -> None:
        """Plan at another level from the next step on; what was learned of steps stays."""
        self.settings = replace(self.settings, level=level)

    def has(self, rule: str) -> bool:
        """Whether a rule that can be left out for an ablation is there."""
        return rule not in self.settings.without

    def observe(self, step: FinishedStep) -> None:
        """Follow how far predictions are off."""
        self.steps.observe(step)

    def at_arrival(self, arrival: Arrival, step: RunningStep) -> Decision:
        """Never stop a step; preempting policies override this."""
        return Decision.CONTINUE

    def _builder(self, snapshot: Snapshot) -> PlanBuilder:
        slo, quantile = snapshot.slo, self.steps.quantile
        return PlanBuilder(
            snapshot,
            self.model,
            quantile(slo.tbt_share),
            first_quantile=quantile(slo.ttft_share),
            pace_quantile=quantile(slo.tpot_share),
        )

    def _interval_s(self, snapshot: Snapshot) -> float:
        """Distance of safepoints, as the first version has it."""
        return self.settings.safepoint_interval_s or snapshot.slo.ttft_s / 10.0


def online_cannot_wait(
    model: LatencyModel,
    steps: StepTimes,
    arrival: Arrival,
    step: RunningStep,
    share: float = 1.0,
) -> bool:
    """Whether waiting for the running step would cost the arrival its TTFT target.

    ConServe v1 and v2, Algorithm 2: with ``t_rem`` the predicted rest of the running step and
    ``t_on`` the predicted prefill of every queued online prompt, stop if

        t_rem + t_on > share t_TTFT

    both times the quantile of measured over predicted steps. The papers' share is 1.

    A step that is nearly over is left alone: it ends before it could reach a safepoint. One that
    should be over by now has as long to go as it is late.
    """
    if arrival.request_class != RequestClass.ONLINE or step.num_offline_requests == 0:
        return False
    if step.safepoints.mode is SafepointMode.NONE:
        return False
    quantile = steps.quantile(step.slo.ttft_share)
    expected_s = step.predicted_s * quantile
    remaining_s = expected_s - (arrival.at_s - step.started_at_s)
    if remaining_s < 0.0:
        remaining_s = -remaining_s  # late for reasons unknown: it may be so late again
    elif remaining_s <= min(step.safepoints.interval_s, expected_s):
        return False
    load = StepLoad()
    load.add_chunk(
        step.queued_online_tokens + arrival.earlier_prompt_tokens + arrival.prompt_tokens, 0
    )
    prefill_s = model.predict(load) * quantile
    return remaining_s + prefill_s > share * step.slo.ttft_s
