"""What a step did, told once it is known, which may be one step later."""

from __future__ import annotations

from dataclasses import dataclass

from engine_adapter.core.plan import StepPlan


@dataclass(frozen=True, slots=True)
class Outcome:
    """Measured result of one step.

    Attributes:
        step_id: The step it belongs to.
        measured_s: Duration of the forward pass (events on CUDA, wall time on CPU).
        online_tokens: Tokens computed for online requests.
        offline_tokens: Tokens computed for flex and offline requests.
        stopped_at_layer: Layer at which a safepoint stopped the step, or None.
        dropped: Ids whose work in this step was thrown away.
        flag_to_stop_s: Time between the stop word and the stop, when there was one.
        online_gap_s: Longest gap, up to its end, between two tokens of an online request that it
            gave one; 0 if it gave none a second token.
        timing_valid: False when the duration says nothing about the model: an engine's first
            steps, and those that computed less than was planned.
    """

    step_id: int
    measured_s: float
    online_tokens: int = 0
    offline_tokens: int = 0
    stopped_at_layer: int | None = None
    dropped: tuple[str, ...] = ()
    flag_to_stop_s: float = 0.0
    online_gap_s: float = 0.0
    timing_valid: bool = True


@dataclass(frozen=True, slots=True)
class FinishedStep:
    """A plan beside its outcome: what a policy observes."""

    plan: StepPlan
    outcome: Outcome

    @property
    def is_comparable(self) -> bool:
        """Whether the measured time may be held against the prediction."""
        return (
            self.outcome.timing_valid
            and self.outcome.stopped_at_layer is None
            and self.plan.predicted_s > 0.0
            and self.outcome.measured_s > 0.0
        )
