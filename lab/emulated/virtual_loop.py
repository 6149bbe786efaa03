"""The event loop of an emulated engine's clients, which turns the clock they share with it.

It has nothing to do but to wait::

    what has come in? ── yes ──► handle it
       │ no
    does everybody sleep? ── no ──► look again soon
       │ yes
    turn the clock to the next instant that the device or a timer of ours waits for
"""

from __future__ import annotations

import asyncio
import os
import selectors
import time
from collections.abc import Iterator
from contextlib import contextmanager
from math import ceil

from lab.emulated.clock import FOREVER_NS, NS, VirtualClock
from lab.emulated.stillness import Stillness, processes_of_group

POLL_INTERVAL_S = 0.0002
NOBODY_WAITS_S = 0.01
Events = list[tuple[selectors.SelectorKey, int]]


class NotOnTheClock(RuntimeError):
    """The engine's device waits on another clock."""


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop on a virtual clock.

    Args:
        clock: The clock.

    Attributes:
        clock: The clock.
    """

    def __init__(self, clock: VirtualClock) -> None:
        """The clock shows the host's time until :meth:`virtual`."""
        self._turning = _TurningSelector(clock)
        super().__init__(self._turning)
        self.clock = clock

    def time(self) -> float:
        """The clock's instant, seconds."""
        return self.clock.now_s()

    @contextmanager
    def virtual(self, engine_group: int) -> Iterator[None]:
        """Turn the clock inside the block.

        Args:
            engine_group: Process group of the engine, which has to be idle.

        Raises:
            NotOnTheClock: If its device does not wait on this clock.
        """
        engine = processes_of_group(engine_group)
        if self.clock.device not in engine:  # it would seem to answer at once, or never
            raise NotOnTheClock("no device of this engine waits on the clock: `make setup-engine`")
        still = Stillness([os.getpid(), *engine])
        self.clock.begin()
        self._turning.still = still
        try:
            yield
        finally:
            self._turning.still = None
            self.clock.end()
            still.close()


class _TurningSelector(selectors.DefaultSelector):
    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self._clock = clock
        self.still: Stillness | None = None

    def select(self, timeout: float | None = None) -> Events:
        """Wait for something that comes in, or for the clock to have moved so far."""
        if self.still is None or (timeout is not None and timeout <= 0.0):
            return super().select(timeout)
        until_ns = FOREVER_NS
        if timeout is not None:
            until_ns = self._clock.now_ns + ceil(timeout * NS)
        while not (events := super().select(0.0)):
            if not self.still():
                time.sleep(POLL_INTERVAL_S)
                continue
            if events := super().select(0.0):  # it came before the second look
                break
            if self._clock.turn(until_ns):
                if until_ns < FOREVER_NS:
                    return []
                time.sleep(NOBODY_WAITS_S)
        return events
