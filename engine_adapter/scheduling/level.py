"""Follows how long steps take now, beside what the profile says of them.

Two numbers, of all kinds of step together:

- the *level*, an exponentially weighted mean of measured over profiled time, by which every
  prediction is multiplied: a busy machine is slower at everything;
- the *quantile* of measured over predicted time, by which every budget is divided: what is planned
  to end in time then does so in as many steps as the operator asks for. It moves after each step,

      longer    q <- q (1 + PACE SHARE)
      shorter   q <- q (1 - PACE (1 - SHARE))

  and rests where SHARE of the steps are shorter (Robbins and Monro, Annals of Mathematical
  Statistics 22:3, 1951). It counts every step, so it comes back from wherever it was.
"""

from __future__ import annotations

from engine_adapter.scheduling.latency import LatencyModel, StepLoad
from engine_adapter.scheduling.plan import FinishedStep

WEIGHT = 0.2
"""Of the newest step in the level: a machine's speed changes within seconds."""

LOWEST, HIGHEST = 0.5, 2.0
"""Bounds of the level, and of what one step may contribute: a single stall does not rule."""

PACE = 0.02
MOST = 2.0


class StepLevel:
    """Level and quantile of step times.

    Args:
        level: Follow the level; otherwise it stays 1.
        quantile: Follow the quantile; otherwise it stays 1.

    Attributes:
        level: What the profile's predictions are multiplied with.
        quantile: Measured over predicted time that ``share`` of the steps keep below; at least 1.
        share: As the targets ask for, see :attr:`Slo.share`.
    """

    def __init__(self, *, level: bool = True, quantile: bool = True) -> None:
        """Start as profiled."""
        self.level = self.quantile = 1.0
        self.share = 0.98
        self._follows = (level, quantile)

    def observe(self, step: FinishedStep) -> None:
        """Take in one finished step; steps that say nothing about the model are skipped."""
        if not step.is_comparable:
            return
        measured_s, predicted_s = step.outcome.measured_s, step.plan.predicted_s
        if self._follows[0]:
            ratio = measured_s * step.plan.calibration / predicted_s
            ratio = min(HIGHEST, max(LOWEST, ratio))
            self.level += WEIGHT * (ratio - self.level)
        if self._follows[1]:
            is_longer = measured_s > self.quantile * predicted_s
            change = PACE * self.share if is_longer else -PACE * (1.0 - self.share)
            self.quantile = min(MOST, max(1.0, self.quantile * (1.0 + change)))


class CalibratedModel:
    """The profile's predictions times the level.

    Args:
        profiled: The model as it was measured.
        steps: Follows finished steps; its level moves between plans, never during one.
    """

    def __init__(self, profiled: LatencyModel, steps: StepLevel) -> None:
        """Bind both."""
        self._profiled = profiled
        self._steps = steps

    @property
    def profiled(self) -> LatencyModel:
        """See :attr:`LatencyModel.profiled`."""
        return self._profiled

    @property
    def level(self) -> float:
        """See :attr:`LatencyModel.level`."""
        return self._steps.level

    def predict(self, load: StepLoad) -> float:
        """See :meth:`LatencyModel.predict`."""
        return self._profiled.predict(load) * self._steps.level

    def predict_with_decode(self, load: StepLoad, context_tokens: int) -> float:
        """See :meth:`LatencyModel.predict_with_decode`."""
        return self._profiled.predict_with_decode(load, context_tokens) * self._steps.level

    def max_tokens(
        self, load: StepLoad, context_tokens: int, limit_tokens: int, budget_s: float
    ) -> int:
        """See :meth:`LatencyModel.max_tokens`."""
        bound_s = budget_s / self._steps.level
        return self._profiled.max_tokens(load, context_tokens, limit_tokens, bound_s)
