"""The seam between policies and whatever knows how long a step takes."""

from __future__ import annotations

from typing import Protocol

from engine_adapter.core.plan import StepKind
from engine_adapter.latency.load import StepLoad


class LatencyModel(Protocol):
    """Predicts step durations and inverts the prediction."""

    @property
    def profiled(self) -> LatencyModel:
        """The predictions as they were profiled, all on one occasion: what kinds of step are
        compared with. Levels follow each kind's own last steps, which may be minutes apart.
        """
        ...

    def level(self, kind: StepKind) -> float:
        """What predictions of this kind of step are multiplied with; 1 as profiled."""
        ...

    def predict(self, load: StepLoad) -> float:
        """Duration of a step with this load, in seconds; 0 for an empty one."""
        ...

    def predict_with_decode(self, load: StepLoad, context_tokens: int) -> float:
        """Duration if a decoding request with this much context joined the load."""
        ...

    def max_tokens(
        self, load: StepLoad, context_tokens: int, limit_tokens: int, budget_s: float
    ) -> int:
        """Most prompt tokens of one row that fit beside the load within the budget.

        Args:
            load: Rows already in the step.
            context_tokens: Tokens of the row already in its KV.
            limit_tokens: Upper bound, for example what is left of the prompt.
            budget_s: Bound for the whole step.

        Returns:
            A count in ``[0, limit_tokens]``.
        """
        ...
