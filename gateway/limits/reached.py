"""How often a project may name receivers that cannot be reached.

Looking for one costs us the wait for a name server or a host of the caller's choice. So each look
takes one of a minute's worth, in the buckets that all gateways share, and gets it back when it
finds a receiver.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from api.errors import RateLimited
from batch.webhooks.targets import Unreached, UnresolvedTarget
from gateway.limits.buckets import Charge, cost_us, wait_us
from gateway.limits.limiter import RateLimiter

UNREACHED_PER_MINUTE: Final = 10

_COST_US: Final = cost_us(1, UNREACHED_PER_MINUTE)


class WebhookProbeLimit:
    """Counts looks for receivers that found none, per project."""

    def __init__(self, limiter: RateLimiter) -> None:
        self._limiter = limiter

    @asynccontextmanager
    async def probing(self, project_id: str) -> AsyncIterator[None]:
        """Look for a receiver in the body; a refusal of it counts, everything else does not.

        Raises:
            RateLimited: Too many were refused within a minute.
        """
        charge = Charge(f"coserve:rate:{project_id}:unreached", _COST_US)
        buckets, taken = await self._limiter.take([charge])
        if not taken.allowed:
            wait_s = -(-wait_us(taken.backlogs_us[0], _COST_US) // 1_000_000)
            raise RateLimited(
                "Too many webhook receivers of this project could not be reached: "
                f"limit {UNREACHED_PER_MINUTE} a minute. Please try again in {wait_s}s.",
                headers={"retry-after": str(wait_s)},
            )
        counts = False
        try:
            yield
        except (UnresolvedTarget, Unreached):
            counts = True
            raise
        finally:
            if not counts:
                await self._limiter.give_back(buckets, [charge])
