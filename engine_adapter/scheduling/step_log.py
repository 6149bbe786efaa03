"""The last predicted and measured step times, for judging the model on its own work."""

from __future__ import annotations

from collections import deque
from dataclasses import asdict
from typing import Any

from engine_adapter.scheduling.fit import FitError, summarise
from engine_adapter.scheduling.plan import FinishedStep, StepKind


class StepLog:
    """Keeps ``(kind, predicted_s, measured_s)`` of the newest steps that can be compared.

    Args:
        size: Steps kept.
    """

    def __init__(self, size: int = 1000) -> None:
        self._steps: deque[tuple[StepKind, float, float]] = deque(maxlen=size)

    def add(self, step: FinishedStep) -> None:
        """Take in a finished step; a stopped or untimed one is passed over."""
        if step.is_comparable:
            self._steps.append((step.plan.kind, step.plan.predicted_s, step.outcome.measured_s))

    def errors(self) -> dict[StepKind, FitError]:
        """Relative errors per step kind."""
        by_kind: dict[StepKind, list[float]] = {}
        for kind, predicted_s, measured_s in self._steps:
            by_kind.setdefault(kind, []).append(abs(predicted_s - measured_s) / measured_s)
        return {kind: summarise(values) for kind, values in by_kind.items()}

    def to_plain(self, num_recent: int = 200) -> dict[str, Any]:
        """Errors per kind, and the newest steps as ``[kind, predicted ms, measured ms]``."""
        recent = list(self._steps)[-num_recent:]
        return {
            "errors": {str(kind): asdict(error) for kind, error in self.errors().items()},
            "recent": [
                [str(kind), round(predicted_s * 1e3, 3), round(measured_s * 1e3, 3)]
                for kind, predicted_s, measured_s in recent
            ],
        }
