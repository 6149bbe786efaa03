"""When a device begins a pass that is launched behind others.

The host is ahead of the device: a pass that is launched while another one computes begins when that
one ends::

    host     launch 1        launch 2          result of 1
    device   |---- pass 1 ----|-- copies --|---- pass 2 ----|
                              ends as predicted, or when its result is there
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class _Pass:
    step_id: int
    begins_at_s: float
    predicted_s: float


class PassesInFlight:
    """Passes that are launched and whose results are not there."""

    def __init__(self) -> None:
        self._passes: list[_Pass] = []

    def launch(self, step_id: int, now_s: float, predicted_s: float, wait_s: float = 0.0) -> float:
        """A pass is launched now; the instant at which the device begins it.

        Args:
            step_id: Its step.
            now_s: Instant of the launch.
            predicted_s: How long it will take.
            wait_s: How long it waits for the copies of its step.
        """
        free_at_s = now_s
        if self._passes:
            last = self._passes[-1]
            free_at_s = max(now_s, last.begins_at_s + last.predicted_s)
        begins_at_s = free_at_s + wait_s
        self._passes.append(_Pass(step_id, begins_at_s, predicted_s))
        return begins_at_s

    def over(self, step_id: int, now_s: float) -> None:
        """The pass of this step has ended or was stopped, and so have those in front of it."""
        behind = [i for i, one in enumerate(self._passes) if one.step_id == step_id]
        if behind:
            del self._passes[: behind[0] + 1]
            if self._passes:  # it computes already
                self._passes[0].begins_at_s = min(self._passes[0].begins_at_s, now_s)
