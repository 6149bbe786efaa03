"""Fakes of small seams: a queue and arrivals that remember, a clock that moves when told to."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta


@dataclass
class MemoryQueue:
    """Remembers what was asked for.

    Attributes:
        sent: The tasks in order.
    """

    sent: list[str] = field(default_factory=list)

    async def wake(self, task: str, num: int = 1) -> None:
        self.sent += [task] * num

    def take(self) -> list[str]:
        """Everything remembered so far, which is then forgotten."""
        taken, self.sent = self.sent, []
        return taken


class MemoryArrivals:
    """In memory.

    Attributes:
        keys: What was announced and not forgotten.
    """

    def __init__(self) -> None:
        self.keys: set[str] = set()

    async def announce(self, key: str) -> None:
        self.keys.add(key)

    async def forget(self, key: str) -> None:
        self.keys.discard(key)


class ManualClock:
    """A clock that moves when told to, and by what is slept."""

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
