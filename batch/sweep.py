"""Repairs what a lost message, a dead dispatcher or a wiped broker left behind.

Every few seconds: reap, then ask again for every stage that a batch is waiting for. Asking twice
is harmless, so two sweeps at once, or a sweep beside the real message, change nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from batch.expire import expire
from batch.queue import Queue
from batch.reap import reap
from batch.settings import LEASE_STALE_S
from batch.states import BatchStatus
from store.repositories import batch as batches
from store.repositories import dispatcher as dispatchers
from store.repositories import engine as engines
from store.repositories import webhook_delivery as deliveries
from store.session import Database

WAITING_S = 3.0
"""A batch that has waited for its next stage for this long may have lost its message."""


@dataclass(frozen=True)
class Sweep:
    """What one sweep found to repair."""

    num_reaped: int
    num_validate: int
    num_finalize: int
    num_expired: int
    woken: bool
    webhooks_due: bool = False


async def sweep(
    database: Database,
    queue: Queue,
    static_engines: Sequence[str],
    *,
    stale_s: float = LEASE_STALE_S,
    waiting_s: float = WAITING_S,
) -> Sweep:
    """One sweep.

    Args:
        database: Where the truth is.
        queue: Where to ask.
        static_engines: The addresses of ENGINE_URLS. These and the registered ones should have a
            dispatcher while rows are pending, but for those that are draining.
        stale_s: Age at which a heartbeat counts as stopped.
        waiting_s: How long a batch may wait before it is asked for again.
    """
    num_reaped = await reap(database, stale_s=stale_s)
    expired = await expire(database, queue)
    async with database.unit_of_work() as session:
        waiting = await batches.waiting_for_a_stage(session, idle_s=waiting_s)
        has_rows = await dispatchers.has_claimable_rows(session)
        leased = await dispatchers.engine_urls(session)
        await engines.forget_silent(session)
        in_use = await engines.in_use(session, static_engines)
        webhooks_due = await deliveries.any_due(session)
    to_validate = [name for name, status in waiting if status == BatchStatus.VALIDATING]
    to_finalize = [name for name, status in waiting if status != BatchStatus.VALIDATING]
    for batch_id in to_validate:
        await queue.enqueue_validate(batch_id)
    for batch_id in to_finalize:
        await queue.enqueue_finalize(batch_id)
    idle = [one.url for one in in_use if not one.draining and one.url not in leased]
    woken = has_rows and bool(idle)
    if woken:
        await queue.wake_dispatchers(idle)
    if webhooks_due:
        await queue.enqueue_deliver()
    return Sweep(num_reaped, len(to_validate), len(to_finalize), len(expired), woken, webhooks_due)
