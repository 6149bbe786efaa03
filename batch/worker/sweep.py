"""Repairs what a lost message, a dead dispatcher or a wiped broker left behind.

Every few seconds: reap, then wake whoever has something to do. Waking twice is harmless, so two
sweeps at once, or a sweep beside another's message, change nothing. Each part is for itself: one
that fails takes none of the others along.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from sqlalchemy.ext.asyncio import AsyncSession

from batch.queue import DELIVER, DISPATCH, STAGES, Queue
from batch.run.reap import reap
from batch.settings import LEASE_STALE_S
from engine_adapter.client.engine_address import usable
from store.failures import AWAY
from store.repositories import dispatcher as dispatchers
from store.repositories import engine as engines
from store.repositories import stage as stages
from store.repositories import webhook_delivery as deliveries
from store.session import Database

logger = logging.getLogger(__name__)
T = TypeVar("T")


@dataclass(frozen=True)
class Sweep:
    """What one sweep found.

    Attributes:
        num_reaped: Rows of dispatchers that are gone.
        stages_due: A batch wants a stage.
        num_idle: Engines that should have a dispatcher and have none.
        webhooks_due: An event is to be delivered.
    """

    num_reaped: int = 0
    stages_due: bool = False
    num_idle: int = 0
    webhooks_due: bool = False


async def sweep(
    database: Database,
    queue: Queue,
    static_engines: Sequence[str],
    *,
    stale_s: float = LEASE_STALE_S,
) -> Sweep:
    """One sweep.

    Args:
        database: Where the truth is.
        queue: How workers are woken.
        static_engines: The addresses of ENGINE_URLS.
        stale_s: Age at which a heartbeat counts as stopped.

    Raises:
        Exception: What the first part that failed raised, after all have run.
    """
    failed: list[Exception] = []

    async def part(work: Callable[[], Awaitable[T]], otherwise: T) -> T:
        """One part; what goes wrong in it waits until the others ran."""
        try:
            return await work()
        except AWAY:
            raise
        except Exception as error:
            logger.exception("a part of the sweep failed")
            failed.append(error)
            return otherwise

    def asked(query: Callable[[AsyncSession], Awaitable[T]]) -> Callable[[], Awaitable[T]]:
        async def ask() -> T:
            async with database.unit_of_work() as session:
                return await query(session)

        return ask

    async def idle_engines(session: AsyncSession) -> list[str]:
        return usable(await dispatchers.idle_engines(session, static_engines, stale_s=stale_s))

    num_reaped = await part(partial(reap, database, stale_s=stale_s), 0)
    await part(asked(engines.forget_silent), None)
    await part(asked(stages.end_future_leases), None)
    stages_due = await part(asked(stages.oldest_due_s), None) is not None
    if stages_due:
        await queue.wake(STAGES)
    nobody: list[str] = []
    if idle := await part(asked(idle_engines), nobody):
        await queue.wake(DISPATCH, len(idle))
    if webhooks_due := await part(asked(deliveries.any_due), False):
        await queue.wake(DELIVER)
    if failed:
        raise failed[0]
    return Sweep(num_reaped, stages_due, len(idle), webhooks_due)
