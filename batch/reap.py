"""Rows of dispatchers that are gone come back.

A dispatcher is gone when its heartbeat is older than `LEASE_STALE_S`: killed, stopped, or cut off
from the database. If it wakes up later, its writes meet the fence.
"""

from __future__ import annotations

import logging

from batch.settings import LEASE_STALE_S
from store.repositories import dispatcher as dispatchers
from store.repositories import event
from store.repositories import row as rows
from store.session import Database

logger = logging.getLogger(__name__)


async def reap(database: Database, *, stale_s: float = LEASE_STALE_S) -> int:
    """End stale leases and make the rows of ended ones pending again; how many rows."""
    async with database.unit_of_work() as session:
        engines = await dispatchers.forget_stale(session, stale_s=stale_s)
        num_by_batch = await rows.reap(session)
        for batch_id, num_rows in sorted(num_by_batch.items()):
            await event.append(session, batch_id, "rows_reaped", detail={"num_rows": num_rows})
    if engines:
        logger.warning("dispatchers gone: %s", ", ".join(engines))
    return sum(num_by_batch.values())
