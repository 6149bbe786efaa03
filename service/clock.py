"""The one seam through which the batch service sees time on a host.

Instants that are compared with columns (expiry, heartbeats, back-off) come from the database's
clock inside SQL; this clock only paces loops and measures durations.
"""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime
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
