"""Time between two forward passes: part of every gap between tokens, and no part of a pass."""

from __future__ import annotations

WEIGHT = 0.1
LONGEST_GAP_S = 0.05


class PassGap:
    """Weighted mean of the gaps between passes that follow each other without a pause.

    Attributes:
        mean_s: The mean; 0 until two passes followed each other.
    """

    def __init__(self) -> None:
        """Start without a pass."""
        self.mean_s = 0.0
        self._ended_at_s: float | None = None

    def started(self, at_s: float) -> None:
        """A pass begins. Longer gaps are idle time, profiling or a stall and say nothing."""
        if self._ended_at_s is None:
            return
        gap_s = at_s - self._ended_at_s
        if 0.0 <= gap_s <= LONGEST_GAP_S:
            weight = WEIGHT if self.mean_s else 1.0
            self.mean_s += weight * (gap_s - self.mean_s)

    def ended(self, at_s: float) -> None:
        """The pass is over."""
        self._ended_at_s = at_s
