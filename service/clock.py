"""The one seam through which the batch service sees time on a host.

Instants that are compared with columns (expiry, heartbeats, back-off) come from the database's
clock inside SQL; this clock only paces loops and measures durations.
"""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """Wall time, monotonic time and waiting."""

    def now(self) -> datetime:
        """The current instant, UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds from an arbitrary start; never goes back."""
        ...

    async def sleep(self, duration_s: float) -> None:
        """Wait."""
        ...


class SystemClock:
    """The host's clock."""

    def now(self) -> datetime:
        """The current instant, UTC."""
        return datetime.fromtimestamp(time.time_ns() / 1e9, UTC)

    def monotonic(self) -> float:
        """Seconds from an arbitrary start."""
        return time.monotonic()

    async def sleep(self, duration_s: float) -> None:
        await asyncio.sleep(duration_s)


class ManualClock:
    """A clock that moves when told to, and by what is slept: the fake of the seam."""

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._start = start
        self._elapsed_s = 0.0

    def now(self) -> datetime:
        """The current instant, UTC."""
        return self._start + timedelta(seconds=self._elapsed_s)

    def monotonic(self) -> float:
        """Seconds since the clock was made."""
        return self._elapsed_s

    def advance(self, duration_s: float) -> None:
        self._elapsed_s += duration_s

    async def sleep(self, duration_s: float) -> None:
        """Advance by the duration and let other tasks run."""
        self.advance(duration_s)
        await asyncio.sleep(0)
