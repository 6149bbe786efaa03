"""The stage that delivers: claims what is due, posts it, writes down what came of it.

    pending ──claim──► leased ──2xx──► delivered
       ▲                  │
       └── failure, later ┴── too late, or the endpoint is disabled ──► failed

At least once: the claim is committed before the POST, the outcome after it. A process that dies in
between leaves a lease that runs out, and the same `webhook-id` is sent again.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from batch.removal import Budget, forget
from batch.webhooks.events import body_of
from batch.webhooks.sender import Attempt, Sender
from store.failures import AWAY
from store.repositories import statements
from store.repositories import webhook_delivery as deliveries
from store.repositories import webhook_endpoint as endpoints
from store.repositories.webhook_delivery import ClaimedDelivery
from store.session import Database

# --- When a delivery is tried again, and when it is given up. Pure but for the jitter.
#
#     attempt   1    2     3     4       5       6        7      8 …
#     wait      5 s  15 s  45 s  2¼ min  6¾ min  20 min   1 h    3 h, then every 6 h, to 72 h
#
# Each wait is drawn between half of it and the whole, so that receivers that fail together are not
# called together.


_SYSTEM_RANDOM: Final = random.SystemRandom()


@dataclass(frozen=True)
class RetrySchedule:
    """The waits between attempts.

    Attributes:
        first_s: The longest wait after the first failure.
        factor: How much longer each one is than the one before.
        longest_s: No wait is longer.
        horizon_s: Age of the event after which nothing is tried any more.
        disable_after_s: How long an endpoint may fail without a success before it is disabled.
    """

    first_s: float = 5.0
    factor: float = 3.0
    longest_s: float = 6 * 3600.0
    horizon_s: float = 72 * 3600.0
    disable_after_s: float = 72 * 3600.0

    def longest_wait_s(self, num_attempts: int) -> float:
        """The upper bound of the wait after so many attempts, at least one."""
        exponent = min(num_attempts - 1, 64)
        return min(self.longest_s, self.first_s * self.factor**exponent)

    def wait_s(self, num_attempts: int, chance: random.Random = _SYSTEM_RANDOM) -> float:
        """How long to wait after so many attempts."""
        longest_s = self.longest_wait_s(num_attempts)
        return chance.uniform(longest_s / 2, longest_s)

    def next_at(self, num_attempts: int, event_at: datetime, now: datetime) -> datetime | None:
        """When to try again; none where that is beyond the horizon."""
        at = now + timedelta(seconds=self.wait_s(num_attempts))
        return at if at <= event_at + timedelta(seconds=self.horizon_s) else None


logger = logging.getLogger(__name__)

KEPT_S: Final = 30 * 86400.0
"""How long ended deliveries can be looked at."""

_IDLE_LIMIT_S: Final = 120.0


@dataclass(frozen=True)
class DeliveryLimits:
    """Bounds of a deliverer.

    Attributes:
        max_in_flight: Posts at once; a project may have half of those that are free when it asks,
            so that there is always room for another one.
        per_endpoint: Posts at once to one endpoint; to one that fails there is one.
        lease_s: An attempt that says nothing for this long is made again; longer than a post may
            take, its write included.
        poll_s: How often to look for what has come due while posts are in flight.
    """

    max_in_flight: int = 256
    per_endpoint: int = 4
    lease_s: float = 60.0
    poll_s: float = 0.25
    schedule: RetrySchedule = field(default_factory=RetrySchedule)


async def deliver(
    database: Database,
    sender: Sender,
    *,
    worker: str,
    drain: asyncio.Event,
    limits: DeliveryLimits | None = None,
) -> bool:
    """Deliver until nothing is due and nothing under way, or the worker drains.

    One at a time in each worker, so that receivers that let us wait never occupy more than one of
    its processes. It goes on as long as there is work: to end would be to wait for the slowest
    receiver, and to let all others wait for it.

    Args:
        database: Where the deliveries are.
        sender: What posts them.
        worker: Which worker this process belongs to.
        drain: Set when the worker is to end.
        limits: Bounds of this deliverer.

    Returns:
        Whether there is more to do at once.
    """
    limits = limits or DeliveryLimits()
    async with database.unit_of_work() as session:
        # Held by this transaction until we end, or by nobody: a death frees it.
        if not await deliveries.try_place(session, worker, idle_limit_s=_IDLE_LIMIT_S):
            return False

        async def hold() -> None:
            await deliveries.keep_place(session)

        return await _Deliverer(database, sender, drain, limits, hold).run()


async def collect_deliveries(database: Database, budget: Budget | None = None) -> int:
    """Forget deliveries that ended long ago; how many."""
    return await forget(database, partial(deliveries.collect, older_than_s=KEPT_S), budget)


class _Deliverer:
    """Claims as places come free; a post that takes long holds up nothing but itself."""

    def __init__(
        self,
        database: Database,
        sender: Sender,
        drain: asyncio.Event,
        limits: DeliveryLimits,
        hold: Callable[[], Awaitable[None]],
    ) -> None:
        self._database = database
        self._sender = sender
        self._hold = hold
        self._drain = drain
        self._limits = limits
        self._in_flight: set[asyncio.Task[None]] = set()

    async def run(self) -> bool:
        claimed_any = False
        async with asyncio.TaskGroup() as group:
            while not self._drain.is_set():
                await self._hold()
                claimed = await self._claim()
                claimed_any = claimed_any or bool(claimed)
                for one in claimed:
                    task = group.create_task(self._attempt(one))
                    self._in_flight.add(task)
                    task.add_done_callback(self._in_flight.discard)
                if not self._in_flight:
                    break
                await asyncio.wait(
                    self._in_flight,
                    timeout=self._limits.poll_s,
                    return_when=asyncio.FIRST_COMPLETED,
                )
        if self._drain.is_set() or not claimed_any:
            # The sweep asks again. What is due may wait for attempts of other deliverers.
            return False
        async with self._database.unit_of_work() as session:
            return await deliveries.any_due(session)

    async def _claim(self) -> list[ClaimedDelivery]:
        places = self._limits.max_in_flight - len(self._in_flight)
        if places <= 0:
            return []
        async with self._database.unit_of_work() as session:
            return await deliveries.claim(
                session,
                limit=places,
                per_endpoint=self._limits.per_endpoint,
                per_project=max(1, places // 2),
                lease_s=self._limits.lease_s,
            )

    async def _attempt(self, claimed: ClaimedDelivery) -> None:
        """Post one and settle it; what goes wrong is its own.

        Its lease runs out then, and it is made again: once too often, never too seldom.
        """
        try:
            attempt = await self._sender.post(
                claimed.url,
                webhook_id=claimed.id,
                body=body_of(
                    claimed.event_id, claimed.event_type, claimed.batch_id, claimed.event_at
                ),
                keys=claimed.keys,
            )
            await self._settle(claimed, attempt)
        except AWAY as away:
            logger.warning("outcome of %s not written: %s", claimed.id, type(away).__name__)
        except Exception:
            logger.exception("delivery %s failed", claimed.id)

    async def _settle(self, claimed: ClaimedDelivery, attempt: Attempt) -> None:
        schedule = self._limits.schedule
        async with self._database.unit_of_work() as session:
            # The endpoint first, its deliveries after: whoever disables it locks in this order too.
            next_at, disabled = None, False
            if attempt.failure is None:
                await endpoints.succeeded(session, claimed.endpoint_id)
            else:
                disabled = await endpoints.failed(
                    session, claimed.endpoint_id, disable_after_s=schedule.disable_after_s
                )
                now = await statements.now(session)
                next_at = schedule.next_at(claimed.attempts, claimed.event_at, now)
            await deliveries.settle(
                session,
                claimed,
                http_status=attempt.status,
                error=attempt.failure,
                next_at=next_at,
            )
            if disabled:
                num_ended = await deliveries.give_up(session, claimed.endpoint_id)
                logger.warning("%s disabled, %d given up", claimed.endpoint_id, num_ended)
