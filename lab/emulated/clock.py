"""The clocks of an emulated device: the host's, and one that skips the time in which nobody works.

The second is shared by the engine and its clients. It stands while anybody works and jumps to the
next instant that somebody waits for::

    client     | send |                                | receive |
    server            | schedule |                     | stream  |
    device                       |(waits for 12 ms)               |(waits for 24 ms)
    clock, ms  0      0          0 ···················► 12        12 ···

So a run lasts as long as its work on the host, and the host's own speed and its neighbours show in
no latency. The clients' event loop turns the clock (:mod:`.virtual_loop`); until it does, the clock
shows the host's time. Only one device can wait.
"""

from __future__ import annotations

import mmap
import os
import time
from math import ceil
from pathlib import Path
from time import monotonic_ns  # an emulated engine's `time.monotonic` is this clock
from typing import Protocol

ENVIRONMENT = "COSERVE_EMULATED_CLOCK"
"""The clock's folder; none: the host's clock."""

NS = 1e9
FOREVER_NS = 2**63 - 1
FIELDS = 6
TURNED, AT, AHEAD, DUE, HORIZON, DEVICE = range(FIELDS)
"""Fields of the page, 64 bits each. ``AT`` is the instant while the clock is turned; else it is
``AHEAD`` of the host's. ``DUE`` is what the device waits for, 0 if for nothing. Up to ``HORIZON``
no client does anything of its own. ``DEVICE`` is the process that waits on it."""

LONGEST_NAP_S = 0.05


class Clock(Protocol):
    """What a device waits on."""

    def now_s(self) -> float:
        """The instant."""

    def wait(self, seconds: float) -> None:
        """Let so much time pass."""

    def launched(self) -> None:
        """A pass begins; whoever got something from the last one may be at work."""

    def quiet_until_s(self) -> float:
        """Up to this instant nobody does anything of their own; 0 if that is not known."""


class HostClock:
    """The host's clock."""

    now_s = staticmethod(time.monotonic)
    wait = staticmethod(time.sleep)

    quiet_until_s = staticmethod(float)

    def launched(self) -> None:
        """Nothing to do: nobody is waited for."""


class VirtualClock:
    """The shared clock, of one process.

    Args:
        folder: Where :meth:`create` made it.
    """

    def __init__(self, folder: Path) -> None:
        with (folder / "page").open("r+b") as file:
            self._fields = memoryview(mmap.mmap(file.fileno(), 0)).cast("q")
        self._wake = os.open(folder / "wake", os.O_RDWR)
        self._alone = False

    @classmethod
    def create(cls, folder: Path) -> VirtualClock:
        """Make one that shows the host's time."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "page").write_bytes(bytes(8 * FIELDS))
        (folder / "wake").unlink(missing_ok=True)
        os.mkfifo(folder / "wake")
        return cls(folder)

    @property
    def is_turned(self) -> bool:
        """Whether it moves only when it is turned."""
        return bool(self._fields[TURNED])

    @property
    def now_ns(self) -> int:
        """The instant in nanoseconds."""
        fields = self._fields
        return fields[AT] if fields[TURNED] else monotonic_ns() + fields[AHEAD]

    def now_s(self) -> float:
        """The instant, on every side to the same nanosecond."""
        return self.now_ns / NS

    @property
    def device(self) -> int:
        """The process that waits on it; 0 if none does."""
        return self._fields[DEVICE]

    # --- the device --------------------------------------------------------------------------

    def join(self) -> None:
        """This process's device is going to wait on it."""
        self._fields[DEVICE] = os.getpid()

    def launched(self) -> None:
        """From here on others may be at work: the next wait is for them, too."""
        self._alone = False

    def quiet_until_s(self) -> float:
        """When a client wants to act, once the others are known to wait."""
        return self._fields[HORIZON] / NS if self.is_turned and self._alone else 0.0

    def wait(self, seconds: float) -> None:
        """Let so much time pass, of the device.

        Once the others are known to wait, too, the device passes the time on its own up to the
        instant at which a client wants to act. Less than a nanosecond counts as one: who waits for
        an instant between two would else wait for ever.
        """
        due_ns = self.now_ns + ceil(seconds * NS)
        while (left_ns := due_ns - self.now_ns) > 0:
            if not self.is_turned:
                time.sleep(min(left_ns / NS, LONGEST_NAP_S))
            elif self._alone and due_ns <= self._fields[HORIZON]:
                self._fields[AT] = due_ns
            else:
                self._fields[DUE] = due_ns
                os.read(self._wake, 1)
                self._alone = True

    # --- who turns it ------------------------------------------------------------------------

    def begin(self) -> None:
        """From here on it has to be turned; the device has to be idle."""
        self._fields[AT] = self.now_ns
        self._fields[DUE] = 0
        self._fields[TURNED] = 1

    def end(self) -> None:
        """From here on it goes on as the host's does."""
        self._fields[AHEAD] = self._fields[AT] - monotonic_ns()
        self._fields[TURNED] = 0
        self._release()

    def turn(self, until_ns: int) -> bool:
        """Go to the next instant that is waited for, while everybody waits.

        Args:
            until_ns: When the caller itself wants to act.

        Returns:
            Whether that is now; else the device has been woken.
        """
        due_ns = self._fields[DUE] or FOREVER_NS
        if until_ns <= due_ns:
            if until_ns < FOREVER_NS:
                self._fields[AT] = max(until_ns, self._fields[AT])
            return True
        self._fields[AT] = due_ns
        self._fields[HORIZON] = until_ns
        self._release()
        return False

    def _release(self) -> None:
        if self._fields[DUE]:
            self._fields[DUE] = 0
            os.write(self._wake, b".")


def device_clock() -> Clock:
    """The clock that this engine is told to wait on.

    A virtual one is what the whole process then takes for ``time.monotonic``: the runtime's
    deadlines and the device's passes have to be on one clock.
    """
    folder = os.environ.get(ENVIRONMENT, "")
    if not folder:
        return HostClock()
    clock = VirtualClock(Path(folder))
    clock.join()
    time.monotonic = clock.now_s
    return clock
