"""The garbage collector of a process that serves."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Final

RARELY: Final = (50_000, 20, 20)
YOUNG_ALONE: Final = (5_000, 1_000_000, 1_000)
"""Objects are looked at once, some milliseconds' worth of them; `QuietCollector` does the rest."""
PATIENCE_S: Final = 600.0


def freeze_gc(thresholds: tuple[int, int, int] = RARELY) -> None:
    """Let the garbage collector look rarely, and never at what was imported.

    A call makes thousands of objects and hardly a cycle: looked at every 700 objects, as is the
    default, the collector takes a fifth of the dispatcher's CPU.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*thresholds)


class QuietCollector:
    """Collects what outlived its youth when nobody waits, or else once in ten minutes.

    A conversation of 16,000 items is 100,000 objects: each time the collector looks at those of all
    requests, every stream of the process stands still for 40 ms and more.

    Args:
        is_quiet: Whether nobody waits.
        now: Seconds.
    """

    def __init__(
        self, is_quiet: Callable[[], bool], now: Callable[[], float] = time.monotonic
    ) -> None:
        self._is_quiet = is_quiet
        self._now = now
        self._last_s = now()

    async def poll(self) -> None:
        """Collect, if this is the moment."""
        if self._is_quiet() or self._now() >= self._last_s + PATIENCE_S:
            gc.collect()
            self._last_s = self._now()
