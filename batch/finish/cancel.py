"""A batch is cancelled, or its completion window ends.

Cancelled (rows R-17 to R-21): at once, the status. Then, by others: the dispatcher takes its rows
off the engine within a second, and finalization closes the rows that never ran and delivers what
was finished.
"""

from __future__ import annotations

from sqlalchemy.ext.asyncio import AsyncSession

from api.batch_errors import BatchNotFound
from api.errors import Conflict
from batch.states import CANCELLABLE_BATCH, BatchStatus
from batch.transition import move
from store.models import Batch
from store.repositories import batch as batches
from store.session import Database


async def cancel(session: AsyncSession, project_id: str, batch_id: str) -> Batch:
    """Move the batch to `cancelling`; the caller enqueues its finalization after the commit.

    Idempotent: a batch that is being cancelled, or was, is returned as it is.

    Raises:
        BatchNotFound: No such batch in the project.
        Conflict: It has ended otherwise, or its files are being written.
    """
    batch = await batches.get(session, project_id, batch_id)
    if batch is None:
        raise BatchNotFound(batch_id)
    moved = await move(session, batch_id, BatchStatus.CANCELLING)
    if moved is not None:
        return moved
    await session.refresh(batch)
    if batch.status in (BatchStatus.CANCELLING, BatchStatus.CANCELLED):
        return batch
    raise Conflict(
        f"Cannot cancel a batch with status '{batch.status}'.",
        current=batch.status,
        expected=tuple(sorted(CANCELLABLE_BATCH)),
    )


# --- The completion window ends (rows ).
#
# A batch whose window has ended is claimed from no more (the claim itself looks at the clock), its
# rows in flight are taken off the engine by the dispatcher, and its finalization closes what is
# left and moves it to `expired`. One still validating has nothing to deliver and expires here.


async def expire(database: Database, batch_id: str) -> bool:
    """Expire a batch whose window ended before it was validated; whether it was one."""
    async with database.unit_of_work() as session:
        batch = await batches.lock(session, batch_id)
        if batch is None or batch.status != BatchStatus.VALIDATING:
            return False
        return await move(session, batch_id, BatchStatus.EXPIRED) is not None
