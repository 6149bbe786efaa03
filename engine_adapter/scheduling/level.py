"""Follows how long steps take now, beside what the profile says of them.

Two exponentially weighted averages per executor, of

    r = measured / profile's prediction

its mean, the *level*, by which every prediction is multiplied, and the mean deviation of measured
steps from what was predicted so, from which the *margin* of every budget follows. A level above
one narrows every budget at once; below one (the profile was measured on a busy machine) it gives
room back.
"""

from __future__ import annotations

from engine_adapter.scheduling.latency import LatencyModel, StepLoad
from engine_adapter.scheduling.plan import FinishedStep, StepKind

PRIOR_STEPS = 4  # the first deviations are averaged with so many steps just as predicted


class DriftTracker:
    """Level and margin of step predictions, per step kind.

    Args:
        level_weight: Weight of the newest step in the level. A machine's speed changes within
            seconds: a fifth halved the error of predictions where a twentieth took a third off.
        weight: Weight of the newest step in the mean deviation.
        deviations: Mean deviations that make the margin. Of 3,800 recorded steps one in twelve was
            longer than two allow: their noise has longer tails than a normal one.
        limit: Largest margin.
        lowest: Smallest level.
        highest: Largest level, and the most that one step may contribute, so that a single stall
            does not rule.
    """

    def __init__(
        self,
        level_weight: float = 0.2,
        weight: float = 0.05,
        deviations: float = 2.0,
        limit: float = 1.0,
        lowest: float = 0.5,
        highest: float = 2.0,
    ) -> None:
        """Start without any drift."""
        self._level_weight = level_weight
        self._weight = weight
        self._deviations = deviations
        self._limit = limit
        self._lowest = lowest
        self._highest = highest
        self._level: dict[StepKind, float] = {}
        self._deviation: dict[StepKind, float] = {}
        self._count: dict[StepKind, int] = {}

    def observe(self, step: FinishedStep) -> None:
        """Take in one finished step; steps that say nothing about the model are skipped."""
        if not step.is_comparable:
            return
        kind = step.plan.kind
        profiled_s = step.plan.predicted_s / step.plan.calibration
        ratio = min(self._highest, max(self._lowest, step.outcome.measured_s / profiled_s))
        level = self.level(kind)
        self._level[kind] = level + self._level_weight * (ratio - level)
        count = self._count.get(kind, 0) + 1
        self._count[kind] = count
        weight = max(self._weight, 1.0 / (PRIOR_STEPS + count))
        deviation = self._deviation.get(kind, 0.0)
        noise = min(1.0, abs(step.outcome.measured_s / step.plan.predicted_s - 1.0))
        self._deviation[kind] = deviation + weight * (noise - deviation)

    def level(self, kind: StepKind) -> float:
        """What the profile's prediction of a step of this kind is multiplied with."""
        return self._level.get(kind, 1.0)

    def margin(self, kind: StepKind) -> float:
        """Relative widening for the noise of steps of this kind, in ``[0, limit]``."""
        return min(self._limit, self._deviations * self._deviation.get(kind, 0.0))


# --- A latency model at the level that the machine's own steps have now.


class CalibratedModel:
    """The profile's predictions times the drift's level of their kind of step.

    Args:
        profiled: The model as it was measured.
        drift: Follows finished steps; its levels move between plans, never during one.
    """

    def __init__(self, profiled: LatencyModel, drift: DriftTracker) -> None:
        """Bind both."""
        self._profiled = profiled
        self._drift = drift

    @property
    def profiled(self) -> LatencyModel:
        """See :attr:`LatencyModel.profiled`."""
        return self._profiled

    def level(self, kind: StepKind) -> float:
        """See :meth:`LatencyModel.level`."""
        return self._drift.level(kind)

    def predict(self, load: StepLoad) -> float:
        """See :meth:`LatencyModel.predict`."""
        return self._profiled.predict(load) * self._drift.level(load.kind)

    def predict_with_decode(self, load: StepLoad, context_tokens: int) -> float:
        """See :meth:`LatencyModel.predict_with_decode`."""
        kind = StepKind.MIXED if load.chunk_rows else StepKind.DECODE
        return self._profiled.predict_with_decode(load, context_tokens) * self._drift.level(kind)

    def max_tokens(
        self, load: StepLoad, context_tokens: int, limit_tokens: int, budget_s: float
    ) -> int:
        """See :meth:`LatencyModel.max_tokens`."""
        kind = StepKind.MIXED if load.decode_rows else StepKind.PREFILL
        budget_s /= self._drift.level(kind)
        return self._profiled.max_tokens(load, context_tokens, limit_tokens, budget_s)
