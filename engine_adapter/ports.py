"""The seam between the driver and whatever executes steps."""

from __future__ import annotations

from typing import Protocol

from engine_adapter.core.arrival import RunningStep
from engine_adapter.core.outcome import Outcome
from engine_adapter.core.plan import StepPlan
from engine_adapter.core.snapshot import Snapshot


class ExecutionPort(Protocol):
    """SGLang with the plugin, or an engine in memory.

    A step goes ``snapshot`` -> (driver) -> ``apply`` -> ``launched`` ... ``outcomes``. Outcomes of
    step n may come after the snapshot of step n + 1: that is the overlap of a real engine.
    """

    def snapshot(self) -> Snapshot:
        """The state before the next step; its step id has not been used before."""
        ...

    def apply(self, plan: StepPlan) -> RunningStep | None:
        """Carry the plan out and launch its forward pass; None if it computes nothing."""
        ...

    def outcomes(self) -> list[Outcome]:
        """Outcomes that became known since the last call, oldest first."""
        ...
