"""How long an engine that went away stays away: what callers are told to wait.

    away for less than it was the last time   what is left of that; `RETURN_S` the first time
    away for longer                           half as long as it is away already

So those who ask again after that time meet it soon after it is back, without asking all the while.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

RETURN_S: Final = 30.0
"""An engine that nobody has seen return is expected after so long."""

LONGEST_WAIT_S: Final = 60.0
"""Official clients wait no longer by themselves."""


@dataclass
class Absence:
    """When an engine went away, and how long it was away the last time. Times are monotonic."""

    since_s: float | None = None
    usual_s: float = RETURN_S

    def begin(self, now_s: float) -> None:
        """It does not answer; nothing changes if it did not before."""
        if self.since_s is None:
            self.since_s = now_s

    def end(self, now_s: float) -> None:
        if self.since_s is not None:
            self.usual_s, self.since_s = now_s - self.since_s, None

    def wait_s(self, now_s: float) -> int:
        """After how many seconds to ask again; at least one."""
        away_s = 0.0 if self.since_s is None else now_s - self.since_s
        left_s = self.usual_s - away_s
        wait_s = left_s if left_s > 0 else away_s / 2
        return max(1, math.ceil(min(wait_s, LONGEST_WAIT_S)))
