"""Buckets that fill evenly: the arithmetic of rate limits, and the seam to where they are kept.

A bucket holds one minute's worth of its limit. What has been taken and has not flowed back yet is
its *backlog*, in microseconds: the time until it is full again (the generic cell rate algorithm,
ITU-T I.371: one number per bucket, no timers). Taking `cost` of a limit of `limit` a minute adds
`cost / limit` minutes of backlog; a backlog of more than a minute is refused.

Settling a reservation may take a backlog beyond the minute (the answer was longer than what was
reserved), up to `MAX_BACKLOG_US`: the debt is paid before anything else passes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

PERIOD_US: Final = 60_000_000
MAX_BACKLOG_US: Final = 2 * PERIOD_US
LOST_BACKLOG_US: Final = PERIOD_US // 2
"""What a bucket starts with when its record may have been lost: half full (decision 0054)."""


@dataclass(frozen=True, slots=True)
class Charge:
    """Something to take from one bucket.

    Attributes:
        key: Name of the bucket.
        cost_us: The cost as backlog; negative to give back.
    """

    key: str
    cost_us: int


@dataclass(frozen=True, slots=True)
class Taken:
    """What came of a set of charges: all of them were taken, or none.

    Attributes:
        allowed: Whether they were taken.
        backlogs_us: Each bucket's backlog afterwards, in the charges' order.
    """

    allowed: bool
    backlogs_us: tuple[int, ...]


class Buckets(Protocol):
    """Where buckets are kept. Both methods are atomic over all their charges."""

    async def take(self, charges: Sequence[Charge]) -> Taken:
        """Take every charge, or none if one does not fit."""
        ...

    async def settle(self, charges: Sequence[Charge]) -> None:
        """Take or give back without asking whether it fits."""
        ...


def cost_us(cost: int, limit: int) -> int:
    """The backlog that `cost` of a limit of `limit` a minute makes; `limit` costs fill it."""
    return cost * PERIOD_US // limit


def remaining(backlog_us: int, limit: int) -> int:
    """How much of a limit is left."""
    return max(0, (PERIOD_US - backlog_us) * limit // PERIOD_US)


def wait_us(backlog_us: int, cost_us: int) -> int:
    """How long until a cost fits on a backlog."""
    return max(0, backlog_us + cost_us - PERIOD_US)


class MemoryBuckets:
    """Buckets of this process, for tests and for when the shared ones cannot be reached.

    Args:
        now_us: A clock that never goes back, microseconds.
        lost: Whether a record may have been lost before: buckets then start half full.
    """

    def __init__(
        self,
        now_us: Callable[[], int] = lambda: time.monotonic_ns() // 1000,
        *,
        lost: bool = False,
    ) -> None:
        self._now_us = now_us
        self._full_at_us: dict[str, int] = {}
        self._known_at_us = now_us() + (LOST_BACKLOG_US if lost else 0)

    async def take(self, charges: Sequence[Charge]) -> Taken:
        now_us = self._now_us()
        before = [self._backlog_us(charge.key, now_us) for charge in charges]
        after = [backlog + charge.cost_us for backlog, charge in zip(before, charges, strict=True)]
        if max(after) > PERIOD_US:
            return Taken(False, tuple(before))
        self._put(charges, after, now_us)
        return Taken(True, tuple(after))

    async def settle(self, charges: Sequence[Charge]) -> None:
        now_us = self._now_us()
        after = [self._backlog_us(charge.key, now_us) + charge.cost_us for charge in charges]
        self._put(charges, after, now_us)

    def _backlog_us(self, key: str, now_us: int) -> int:
        full_at_us = self._full_at_us.get(key, self._known_at_us)
        return min(MAX_BACKLOG_US, max(0, full_at_us - now_us))

    def _put(self, charges: Sequence[Charge], backlogs_us: Sequence[int], now_us: int) -> None:
        for charge, backlog_us in zip(charges, backlogs_us, strict=True):
            self._full_at_us[charge.key] = now_us + min(MAX_BACKLOG_US, max(0, backlog_us))
        if len(self._full_at_us) > 10_000:
            self._full_at_us = {k: v for k, v in self._full_at_us.items() if v > now_us}
