"""Repairs what a lost message, a dead dispatcher or a wiped broker left behind.

Every few seconds: reap, then wake whoever has something to do. Waking twice is harmless, so two
sweeps at once, or a sweep beside another's message, change nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from batch.queue import DELIVER, DISPATCH, STAGES, Queue
from batch.run.reap import reap
from batch.settings import LEASE_STALE_S
from engine_adapter.client.engine_address import usable
from store.repositories import dispatcher as dispatchers
from store.repositories import engine as engines
from store.repositories import stage as stages
from store.repositories import webhook_delivery as deliveries
from store.session import Database


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
    """
    num_reaped = await reap(database, stale_s=stale_s)
    async with database.unit_of_work() as session:
        await engines.forget_silent(session)
        await stages.end_future_leases(session)
        stages_due = await stages.oldest_due_s(session) is not None
        idle = usable(await dispatchers.idle_engines(session, static_engines, stale_s=stale_s))
        webhooks_due = await deliveries.any_due(session)
    if stages_due:
        await queue.wake(STAGES)
    if idle:
        await queue.wake(DISPATCH, len(idle))
    if webhooks_due:
        await queue.wake(DELIVER)
    return Sweep(num_reaped, stages_due, len(idle), webhooks_due)
