"""The completion window ends (rows R-22, R-23).

A batch whose window has ended is claimed from no more (the claim itself looks at the clock), its
rows in flight are taken off the engine by the dispatcher, and its finalization closes what is
left and moves it to `expired`. One still validating has nothing to deliver and expires here.
"""

from __future__ import annotations

from batch.states import BatchStatus
from batch.transition import move
from store.repositories import batch as batches
from store.session import Database


async def expire(database: Database, batch_id: str) -> bool:
    """Expire a batch whose window ended before it was validated; whether it was one."""
    async with database.unit_of_work() as session:
        batch = await batches.lock(session, batch_id)
        if batch is None or batch.status != BatchStatus.VALIDATING:
            return False
        return await move(session, batch_id, BatchStatus.EXPIRED) is not None
