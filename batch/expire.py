"""The completion window ends (contract rows R-22, R-23).

A batch whose window has ended is claimed from no more (the claim itself looks at the clock), its
rows in flight are taken off the engine by the dispatcher, and its finalization closes what is
left and moves it to `expired`. One still validating has nothing to deliver and expires here.
"""

from __future__ import annotations

from batch.queue import Queue
from batch.states import BatchStatus
from batch.transition import move
from store.repositories import batch as batches
from store.session import Database


async def expire(database: Database, queue: Queue) -> list[str]:
    """Start the end of every live batch whose window has ended; which those were."""
    async with database.unit_of_work() as session:
        ended = await batches.window_ended(session)
    for batch_id in ended:
        async with database.unit_of_work() as session:
            batch = await batches.lock(session, batch_id)
            if batch is not None and batch.status == BatchStatus.VALIDATING:
                await move(session, batch_id, BatchStatus.EXPIRED)
                continue
        await queue.enqueue_finalize(batch_id)
    return ended
