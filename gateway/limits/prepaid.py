"""Buckets of which a busy gateway takes some ahead: most requests then wait for no round trip.

    take ── what is prepaid is enough ──► counted here
      │
      └──── else one trip: the cost, and as much as the next requests will need

What is prepaid was taken from the shared bucket before, so gateways together never pass a limit
by taking. It is a second's worth of the limit at most, and only of buckets that are busy and more
than half full: whoever comes near its limit asks each time, and is told what is true. What is
prepaid and not used flows back by itself in a second, as everything does that was taken.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from gateway.limits.buckets import PERIOD_US, Buckets, Charge, Taken

FRESH_US: Final = 300_000
"""How long what is prepaid counts, and what the shared bucket said then is told to callers."""

BUSY_US: Final = 1_000_000
"""Who asked so lately is about to ask again; what is held for longer has flowed back by itself."""

AHEAD: Final = 8
"""Requests that are paid for ahead, if the limit is wide enough."""

MOST_US: Final = BUSY_US
_WIDE_US: Final = PERIOD_US // 2
_MANY: Final = 10_000


@dataclass(slots=True)
class _Prepaid:
    """What is known of a bucket.

    Attributes:
        seen_us: When the shared bucket was last asked.
        backlog_us: Its backlog then, with all that is held here, and what was settled since.
        held_us: Taken ahead and not used.
    """

    seen_us: int
    backlog_us: int
    held_us: int

    def backlog_at(self, now_us: int) -> int:
        """The bucket's backlog now, as far as it is known here."""
        return max(0, self.backlog_us - (now_us - self.seen_us))


class PrepaidBuckets:
    """Shared buckets, and what this process took of them ahead.

    Args:
        shared: Where all gateways take from.
        now_us: A clock that never goes back, microseconds.
    """

    def __init__(
        self, shared: Buckets, now_us: Callable[[], int] = lambda: time.monotonic_ns() // 1000
    ) -> None:
        self._shared = shared
        self._now_us = now_us
        self._prepaid: dict[str, _Prepaid] = {}

    async def take(self, charges: Sequence[Charge]) -> Taken:
        now_us = self._now_us()
        known = [self._prepaid.get(charge.key) for charge in charges]
        if all(map(_covers, known, charges, [now_us] * len(known))):
            return self._taken_here(charges, now_us)
        ahead_us = [*map(_ahead_us, known, charges, [now_us] * len(known))]
        held_us = [self._take_held(charge.key, now_us) for charge in charges]
        taken = await self._ask(charges, ahead_us, held_us)
        if not taken.allowed and any(ahead_us):
            ahead_us = [0] * len(ahead_us)
            taken = await self._ask(charges, ahead_us, held_us)
        kept_us = ahead_us if taken.allowed else held_us
        return Taken(taken.allowed, self._noted(charges, taken.backlogs_us, kept_us))

    async def settle(self, charges: Sequence[Charge]) -> None:
        await self._shared.settle(charges)
        for charge in charges:
            prepaid = self._prepaid.get(charge.key)
            if prepaid is not None:
                prepaid.backlog_us += charge.cost_us

    def _taken_here(self, charges: Sequence[Charge], now_us: int) -> Taken:
        backlogs_us = []
        for charge in charges:
            prepaid = self._prepaid[charge.key]
            prepaid.held_us -= charge.cost_us
            backlogs_us.append(max(0, prepaid.backlog_at(now_us) - prepaid.held_us))
        return Taken(True, tuple(backlogs_us))

    def _take_held(self, key: str, now_us: int) -> int:
        """Take all that is prepaid, so that no other request counts on it meanwhile."""
        prepaid = self._prepaid.get(key)
        if prepaid is None:
            return 0
        held_us, prepaid.held_us = prepaid.held_us, 0
        return held_us if now_us - prepaid.seen_us < BUSY_US else 0

    async def _ask(
        self, charges: Sequence[Charge], ahead_us: list[int], held_us: list[int]
    ) -> Taken:
        asked = [
            Charge(charge.key, charge.cost_us + ahead - held)
            for charge, ahead, held in zip(charges, ahead_us, held_us, strict=True)
        ]
        return await self._shared.take(asked)

    def _noted(
        self, charges: Sequence[Charge], backlogs_us: Sequence[int], kept_us: Sequence[int]
    ) -> tuple[int, ...]:
        """Keep what the shared buckets said; their backlogs without what is held here."""
        now_us = self._now_us()
        told = []
        for charge, backlog_us, kept in zip(charges, backlogs_us, kept_us, strict=True):
            prepaid = self._prepaid.setdefault(charge.key, _Prepaid(now_us, 0, 0))
            prepaid.seen_us, prepaid.backlog_us = now_us, backlog_us
            prepaid.held_us += kept
            told.append(max(0, backlog_us - prepaid.held_us))
        if len(self._prepaid) > _MANY:
            old_us = now_us - BUSY_US
            self._prepaid = {key: one for key, one in self._prepaid.items() if one.seen_us > old_us}
        return tuple(told)


def _covers(prepaid: _Prepaid | None, charge: Charge, now_us: int) -> bool:
    """Whether a charge can be counted here; never where the bucket is in debt."""
    return (
        prepaid is not None
        and prepaid.held_us >= charge.cost_us
        and now_us - prepaid.seen_us < FRESH_US
        and prepaid.backlog_at(now_us) <= PERIOD_US
    )


def _ahead_us(prepaid: _Prepaid | None, charge: Charge, now_us: int) -> int:
    """How much to take beside a charge, for those that follow it."""
    if (
        prepaid is None
        or now_us - prepaid.seen_us >= BUSY_US
        or prepaid.backlog_at(now_us) > _WIDE_US
    ):
        return 0
    ahead_us = min(AHEAD * charge.cost_us, MOST_US)
    return ahead_us if ahead_us >= charge.cost_us else 0
