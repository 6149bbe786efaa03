"""When an emulated device is busy: one stream of passes, and a link to the host beside it.

A launch does not wait. What is launched runs behind what was launched before, and the host waits
for the end of a pass, or at a safepoint until the device has come closer::

    host      | prepare 1 |            | prepare 2 |
    device                |== pass 1 ==|== pass 2 ==|
                                       ^ launched later, begins here

A real host prepares a pass while the last one runs, so what the host took in between is hidden. A
host gap longer than the last pass cannot have been hidden: the device was idle, and the pass begins
at its launch. Nothing is hidden before an *armed* pass, one that may be stopped: its launch waits
for the results of the pass before. Behind one only that is hidden what ran when its last layers
were launched, since the host stays close to the device::

    host      |launch 0, 1|..2|..3|         | results | prepare 2 |
    device     |=0=|=1=|=2=|=3=|                                  |== pass 2 ==|

Copies of KV run on the link, one after another, through staging buffers on the device. The stream
waits for the link where a copy needs a buffer that the link has not emptied, or brings KV back::

    link                 |==== store 0 ====|==== store 1 ====|==== store 2 ====|
    stream    |gather 0|1|        waits    |gather 2|== pass ==|
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

POLL_S = 0.001
"""A sleep overshoots by a tenth of a millisecond: a stop is looked for no more often than this."""

LATE_S = 0.001
"""A pass that ended so much after its time is counted as late."""

STAGING_BYTES, NUM_STAGING = 64 << 20, 2
"""The page mover's buffers on the device (`coserve_kernels.staged_mover`, which needs Triton)."""


@dataclass(slots=True)
class PassCounts:
    """What passes took beside what they should have; seconds.

    Attributes:
        passes: Passes that ran to their end.
        late: Those that ended more than :data:`LATE_S` late.
        late_s: Lateness of all passes together.
        worst_s: Largest lateness.
        busy_s: What all passes should have taken.
        armed: Passes that could be stopped, also those that were.
        armed_gap_s: Time the device stood still before those, since nothing was hidden.
        copies_s: Time the link was busy.
        copies_waited_s: Time passes began later because of copies.
        host_cpu_s: What the launching thread computed between passes that came at once.
        host_gaps: Number of those.
    """

    passes: int = 0
    late: int = 0
    late_s: float = 0.0
    worst_s: float = 0.0
    busy_s: float = 0.0
    armed: int = 0
    armed_gap_s: float = 0.0
    copies_s: float = 0.0
    copies_waited_s: float = 0.0
    host_cpu_s: float = 0.0
    host_gaps: int = 0


@dataclass(frozen=True, slots=True)
class Point:
    """A point in a device's work."""

    clock: Callable[[], float]
    at_s: float

    def query(self) -> bool:
        """Whether the device has passed it."""
        return self.clock() >= self.at_s

    def synchronize(self) -> None:
        """Nothing has to be waited for: the instant is known."""

    def elapsed_time(self, later: Point) -> float:
        """Milliseconds to a later point."""
        return 1000.0 * (later.at_s - self.at_s)


class Timeline:
    """One device.

    Args:
        clock: Seconds on a clock that never goes back.
        sleep: Waits so many seconds.
        link_bytes_per_s: What the link to the host carries.
        host_step_s: What the host takes for a step, on a clock that does not show it. Charged where
            it is not hidden: before armed passes and behind them.
        thread_time: CPU seconds of the launching thread.
        quiet_until: Instant up to which nobody asks for a stop; one that has passed says nothing.

    Attributes:
        counts: What passes took.
        last_s: What the newest pass takes on the device, so far as it is launched.
        gap_s: How long the device stood still before it.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
        link_bytes_per_s: float = 40e9,
        host_step_s: float = 0.0,
        thread_time: Callable[[], float] = time.thread_time,
        quiet_until: Callable[[], float] = float,
    ) -> None:
        self.counts = PassCounts()
        self.last_s = self.gap_s = 0.0
        self._clock = clock
        self._sleep = sleep
        self._bytes_per_s = link_bytes_per_s
        self._host_step_s = host_step_s
        self._thread_time = thread_time
        self._quiet_until = quiet_until
        now_s = clock()
        self._free_at_s = now_s
        self._begun_s = now_s
        self._origin_s = now_s
        self._duration_s = 0.0
        self._launched_s = now_s
        self._is_armed = False
        self._hideable_s = 0.0
        self._marks: deque[float] = deque()
        self._copied_s = now_s
        self._link_s = now_s
        self._buffers: deque[float] = deque([now_s] * NUM_STAGING)
        self._cpu_s = thread_time()

    @property
    def free_at_s(self) -> float:
        """When the device will have done all that is launched."""
        return self._free_at_s

    # --- passes ------------------------------------------------------------------------------

    def begin(self, duration_s: float) -> None:
        """A pass of that length is prepared; its layers are launched from here on."""
        now_s = self._clock()
        self._count_host(now_s)
        self._launched_s = now_s
        begun_s = self._ready_s(now_s)
        if self._is_armed:
            begun_s += max(0.0, self._host_step_s - self._hideable_s)
        self._is_armed = False
        self._marks.clear()
        self._duration_s = duration_s
        self.gap_s = begun_s - self._free_at_s
        self._start(begun_s)

    def change(self, share: float, duration_s: float) -> None:
        """From here on, ``share`` of the pass being launched, it is one of another length."""
        at_s = self._origin_s + share * self._duration_s
        self._origin_s = at_s - share * duration_s
        self._duration_s = duration_s

    def launch(self, share: float) -> None:
        """So much of the pass is launched, the rest is not."""
        self._free_at_s = self._origin_s + share * self._duration_s
        self.last_s = self._free_at_s - self._begun_s
        self._hideable_s = self.last_s
        if self._is_armed:
            self._hideable_s = min(self.last_s, self._free_at_s - self._clock())

    def mark(self) -> Point:
        """The end of what is launched so far.

        A pass with such points is armed.
        """
        if not self._is_armed:
            self._arm()
        end_s = self._free_at_s
        self._marks.append(end_s)
        return Point(self._clock, end_s)

    def approach(self, _seconds: float = 0.0) -> None:
        """Wait for the next point, though no longer than :data:`POLL_S` where a stop may come."""
        now_s = self._clock()
        while self._marks and self._marks[0] <= now_s:
            self._marks.popleft()
        if self._marks:
            looks_at_s = max(now_s, self._quiet_until()) + POLL_S
            self._sleep(min(looks_at_s, self._marks[0]) - now_s)

    def finish(self) -> None:
        """Wait for the end of the pass."""
        ahead_s = self._free_at_s - self._clock()
        if ahead_s > 0.0:
            self._sleep(ahead_s)
        late_s = max(0.0, self._clock() - self._free_at_s)
        counts = self.counts
        counts.passes += 1
        counts.late += late_s > LATE_S
        counts.late_s += late_s
        counts.worst_s = max(counts.worst_s, late_s)
        counts.busy_s += self.last_s
        self._cpu_s = self._thread_time()

    def _ready_s(self, now_s: float) -> float:
        """Where the stream goes on, with what the host took hidden as far as it can be."""
        return now_s if now_s - self._free_at_s > self._hideable_s else self._free_at_s

    def _start(self, begun_s: float) -> None:
        waited_s = max(0.0, self._copied_s - begun_s)
        self.counts.copies_waited_s += waited_s
        self._begun_s = self._origin_s = self._free_at_s = begun_s + waited_s
        self.last_s = 0.0

    def _arm(self) -> None:
        """The pass is an armed one: what is launched of it begins no earlier than its launch."""
        self._is_armed = True
        self.counts.armed += 1
        begun_s = max(self._launched_s + self._host_step_s, self._begun_s)
        moved_s = begun_s - self._begun_s
        self.counts.armed_gap_s += moved_s
        self.gap_s += moved_s
        self._begun_s += moved_s
        self._origin_s += moved_s
        self._free_at_s += moved_s

    def _count_host(self, now_s: float) -> None:
        if now_s - self._free_at_s < self.last_s:  # else the engine may have stood idle
            self.counts.host_cpu_s += self._thread_time() - self._cpu_s
            self.counts.host_gaps += 1

    # --- copies ------------------------------------------------------------------------------

    def store(self, num_bytes: int) -> None:
        """KV is gathered on the stream and goes to the host over the link."""
        stream_s = max(self._ready_s(self._clock()), self._copied_s)
        for seconds in self._windows(num_bytes):
            stream_s = max(stream_s, self._buffers.popleft())
            self._buffers.append(self._over_link(stream_s, seconds))
        self._copied_s = stream_s

    def load(self, num_bytes: int) -> None:
        """KV comes over the link and is scattered on the stream."""
        now_s = self._clock()
        stream_s = max(self._ready_s(now_s), self._copied_s)
        for seconds in self._windows(num_bytes):
            arrived_s = self._over_link(max(min(now_s, stream_s), self._buffers.popleft()), seconds)
            stream_s = max(stream_s, arrived_s)
            self._buffers.append(stream_s)
        self._copied_s = stream_s

    def _over_link(self, from_s: float, seconds: float) -> float:
        self._link_s = max(self._link_s, from_s) + seconds
        self.counts.copies_s += seconds
        return self._link_s

    def _windows(self, num_bytes: int) -> Iterator[float]:
        whole, rest = divmod(num_bytes, STAGING_BYTES)
        sizes = [STAGING_BYTES] * whole + [rest] * bool(rest)
        return map(partial(_seconds, self._bytes_per_s), sizes)


def _seconds(bytes_per_s: float, num_bytes: int) -> float:
    return num_bytes / bytes_per_s
