"""Keeps the share of late gaps where it should be, whatever makes them late.

A step beside online rows is filled to the TBT target less the margin of predictions. What the
margin does not know (time between passes, bursts, a neighbour on the host that slows many steps in
a row) makes gaps late all the same, so the gaps themselves say how much of the target is used:

    late     share <- share - PACE (1 - LATE_SHARE)
    in time  share <- share + PACE LATE_SHARE          up to 1

which rests where one gap in twenty is late (Robbins and Monro's search for a quantile, Annals of
Mathematical Statistics 22:3, 1951).
"""

from __future__ import annotations

from engine_adapter.core.outcome import FinishedStep

LATE_SHARE = 0.05
PACE = 0.04
LEAST = 0.7
# A gap longer than so many targets has an online prompt in it, or a stop; less offline work would
# not have kept it short.
FORESEEN = 2.0


class TbtGuard:
    """Follows the gaps between tokens of online rows.

    Attributes:
        share: Of the TBT target, what a step beside online rows may be filled to.
    """

    def __init__(self) -> None:
        """Start with the whole target."""
        self.share = 1.0

    def observe(self, step: FinishedStep, tbt_s: float) -> None:
        """Take in one finished step; those without offline tokens or an online gap say nothing."""
        gap_s = step.outcome.online_gap_s
        if not 0.0 < gap_s <= FORESEEN * tbt_s or step.outcome.offline_tokens == 0:
            return
        if gap_s > tbt_s:
            self.share = max(LEAST, self.share - PACE * (1.0 - LATE_SHARE))
        else:
            self.share = min(1.0, self.share + PACE * LATE_SHARE)
