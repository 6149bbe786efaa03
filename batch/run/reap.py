"""Rows of dispatchers that are gone come back.

A dispatcher is gone when its heartbeat is older than `LEASE_STALE_S`: killed, stopped, or cut off
from the database. If it wakes up later, its writes meet the fence. Its death counts for the rows
it held as an engine's loss does: one that ends its dispatcher each time runs alone at last, and
then not any more (batch/run/quarantine.py).
"""

from __future__ import annotations

import logging
from collections import Counter

from sqlalchemy.ext.asyncio import AsyncSession

from batch.finish.output import failure_line
from batch.run import quarantine
from batch.settings import LEASE_STALE_S
from batch.states import RowStatus
from store.repositories import dispatcher as dispatchers
from store.repositories import event
from store.repositories import result as results
from store.repositories import row as rows
from store.repositories.result import NewResult
from store.session import Database

logger = logging.getLogger(__name__)


async def reap(database: Database, *, stale_s: float = LEASE_STALE_S) -> int:
    """End stale leases and make the rows of ended ones pending again; how many rows."""
    async with database.unit_of_work() as session:
        return await reap_in(session, stale_s=stale_s)


async def reap_in(session: AsyncSession, *, stale_s: float, engine_url: str | None = None) -> int:
    """`reap` in a transaction of the caller's, perhaps of one engine's lease alone."""
    gone = await dispatchers.forget_stale(session, stale_s=stale_s, engine_url=engine_url)
    if gone:
        logger.warning("dispatchers gone: %s", ", ".join(one.engine_url for one in gone))
    reaped = await rows.reap(session, [one.id for one in gone if one.died])
    for batch_id, num_rows in sorted(Counter(one.batch_id for one in reaped).items()):
        await event.append(session, batch_id, "rows_reaped", detail={"num_rows": num_rows})
    given_up = [
        NewResult(
            one.id,
            one.batch_id,
            RowStatus.ERRORED,
            failure_line(
                one.id,
                one.custom_id,
                code=quarantine.DISPATCHER_CODE,
                message=quarantine.DISPATCHER_MESSAGE,
            ),
        )
        for one in reaped
        if quarantine.is_final_for_dispatchers(one.num_losses)
    ]
    if given_up:
        # The last row of a batch among them: the sweep asks for the batch's end.
        await results.write(session, given_up, dispatcher_id=None)
    return len(reaped)
