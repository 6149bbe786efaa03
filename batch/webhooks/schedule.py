"""When a delivery is tried again, and when it is given up. Pure but for the jitter.

    attempt   1    2     3     4       5       6        7      8 …
    wait      5 s  15 s  45 s  2¼ min  6¾ min  20 min   1 h    3 h, then every 6 h, to 72 h

Each wait is drawn between half of it and the whole, so that receivers that fail together are not
called together.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

_SYSTEM_RANDOM: Final = random.SystemRandom()


@dataclass(frozen=True)
class RetrySchedule:
    """The waits between attempts.

    Attributes:
        first_s: The longest wait after the first failure.
        factor: How much longer each one is than the one before.
        longest_s: No wait is longer.
        horizon_s: Age of the event after which nothing is tried any more.
        disable_after_s: How long an endpoint may fail without a success before it is disabled.
    """

    first_s: float = 5.0
    factor: float = 3.0
    longest_s: float = 6 * 3600.0
    horizon_s: float = 72 * 3600.0
    disable_after_s: float = 72 * 3600.0

    def longest_wait_s(self, num_attempts: int) -> float:
        """The upper bound of the wait after so many attempts, at least one."""
        exponent = min(num_attempts - 1, 64)
        return min(self.longest_s, self.first_s * self.factor**exponent)

    def wait_s(self, num_attempts: int, chance: random.Random = _SYSTEM_RANDOM) -> float:
        """How long to wait after so many attempts."""
        longest_s = self.longest_wait_s(num_attempts)
        return chance.uniform(longest_s / 2, longest_s)

    def next_at(self, num_attempts: int, event_at: datetime, now: datetime) -> datetime | None:
        """When to try again; none where that is beyond the horizon."""
        at = now + timedelta(seconds=self.wait_s(num_attempts))
        return at if at <= event_at + timedelta(seconds=self.horizon_s) else None
