"""Follows how far measured steps are from their predictions and widens the margin.

One average per executor: exponentially weighted mean and mean deviation of

    r = measured / predicted - 1

A positive mean (steps slower than predicted) narrows every budget at once; the deviation adds
room for noise. A profile that was measured on a busy machine is too pessimistic; its mean is
negative and gives some of the room back, up to a bound, and only what the noise leaves of it.
"""

from __future__ import annotations

from engine_adapter.core.outcome import FinishedStep
from engine_adapter.core.plan import StepKind


class DriftTracker:
    """Relative residual of step predictions, per step kind.

    Args:
        weight: Weight of the newest step in the averages.
        deviations: Mean deviations added to the margin; two keep 19 of 20 steps inside a budget
            they fill, if their noise is normal.
        limit: Largest margin.
        relief: Most that the margin may fall below zero.
        clip: Largest residual one step may contribute, so that a single stall does not rule.
    """

    def __init__(
        self,
        weight: float = 0.05,
        deviations: float = 2.0,
        limit: float = 1.0,
        relief: float = 0.2,
        clip: float = 1.0,
    ) -> None:
        """Start without any drift."""
        self._weight = weight
        self._deviations = deviations
        self._limit = limit
        self._relief = relief
        self._clip = clip
        self._mean: dict[StepKind, float] = {}
        self._deviation: dict[StepKind, float] = {}
        self._count: dict[StepKind, int] = {}

    def observe(self, step: FinishedStep) -> None:
        """Take in one finished step; steps that say nothing about the model are skipped."""
        if not step.is_comparable:
            return
        kind = step.plan.kind
        residual = step.outcome.measured_s / step.plan.predicted_s - 1.0
        residual = max(-self._clip, min(self._clip, residual))
        count = self._count.get(kind, 0) + 1
        self._count[kind] = count
        # A plain average over the first steps, so that the first one does not set the level.
        weight = max(self._weight, 1.0 / count)
        mean = self._mean.get(kind, 0.0)
        mean += weight * (residual - mean)
        self._mean[kind] = mean
        deviation = self._deviation.get(kind, 0.0)
        self._deviation[kind] = deviation + weight * (abs(residual - mean) - deviation)

    def margin(self, kind: StepKind) -> float:
        """Relative widening for steps of this kind, in ``[-relief, limit]``."""
        if kind not in self._mean:
            return 0.0
        raw = self._mean[kind] + self._deviations * self._deviation[kind]
        return max(-self._relief, min(self._limit, raw))

    def mean_residual(self, kind: StepKind) -> float:
        """Weighted mean of measured over predicted, minus one."""
        return self._mean.get(kind, 0.0)

    def bounded(self, budget_s: float, kind: StepKind) -> float:
        """The budget a prediction must stay under so that the measurement stays under
        ``budget_s``.
        """
        return budget_s / (1.0 + self.margin(kind))
