"""A latency model at the level that the machine's own steps have now."""

from __future__ import annotations

from engine_adapter.core.plan import StepKind
from engine_adapter.latency.drift import DriftTracker
from engine_adapter.latency.load import StepLoad
from engine_adapter.latency.model import LatencyModel


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
