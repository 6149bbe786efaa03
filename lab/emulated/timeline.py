"""When an emulated device is busy, and waiting for it.

The device runs one pass after another. A pass that is launched while the device would still be at
the one before, or soon after, begins where that one ended: on a real device the host prepares a
pass while the last one runs, so what the host took in between is hidden::

    host      | prepare 1 |            | prepare 2 |
    device                |== pass 1 ==|== pass 2 ==|
                                       ^ launched later, begins here

A host gap longer than the last pass cannot have been hidden: the device was idle, and the pass
begins at its launch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

LEAST_SLEEP_S = 0.001
"""A sleep overshoots by a tenth of a millisecond: several short layers are waited for at once."""

LATE_S = 0.001
"""A pass that ended so much after its time is counted as late."""


@dataclass(slots=True)
class PassCounts:
    """What passes took beside what they should have; seconds.

    Attributes:
        passes: Passes that ran to their end.
        late: Those that ended more than :data:`LATE_S` late.
        late_s: Lateness of all passes together.
        worst_s: Largest lateness.
        busy_s: What all passes should have taken.
    """

    passes: int = 0
    late: int = 0
    late_s: float = 0.0
    worst_s: float = 0.0
    busy_s: float = 0.0


class Timeline:
    """One device's passes.

    Args:
        clock: Seconds on a clock that never goes back.
        sleep: Waits so many seconds.

    Attributes:
        counts: What passes took.
        last_s: What the newest pass took on the device, so far as it came.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> None:
        self.counts = PassCounts()
        self.last_s = 0.0
        self._clock = clock
        self._sleep = sleep
        self._free_at_s = clock()
        self._begun_s = self._free_at_s
        self._origin_s = self._free_at_s
        self._duration_s = 0.0

    def begin(self, duration_s: float) -> None:
        """A pass of that length is launched."""
        now_s = self._clock()
        idle_s = now_s - self._free_at_s
        self._begun_s = now_s if idle_s > self.last_s else self._free_at_s
        self._origin_s = self._begun_s
        self._duration_s = duration_s
        self.last_s = 0.0

    def change(self, share: float, duration_s: float) -> None:
        """From here on, ``share`` of the pass being done, it is one of another length."""
        at_s = self._origin_s + share * self._duration_s
        self._origin_s = at_s - share * duration_s
        self._duration_s = duration_s

    def reach(self, share: float) -> None:
        """Wait until so much of the pass is done."""
        self._free_at_s = self._origin_s + share * self._duration_s
        self.last_s = self._free_at_s - self._begun_s
        ahead_s = self._free_at_s - self._clock()
        if ahead_s > (0.0 if share >= 1.0 else LEAST_SLEEP_S):
            self._sleep(ahead_s)
        if share >= 1.0:
            self._count()

    def _count(self) -> None:
        late_s = max(0.0, self._clock() - self._free_at_s)
        counts = self.counts
        counts.passes += 1
        counts.late += late_s > LATE_S
        counts.late_s += late_s
        counts.worst_s = max(counts.worst_s, late_s)
        counts.busy_s += self.last_s
