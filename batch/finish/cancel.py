"""A batch is cancelled (rows R-17 to R-21).

At once: the status. Then, by others: the dispatcher takes its rows off the engine within a
second, and finalization closes the rows that never ran and delivers what was finished.
"""

from __future__ import annotations

from sqlalchemy.ext.asyncio import AsyncSession

from api.batch_errors import BatchNotFound
from api.errors import Conflict
from batch.states import CANCELLABLE_BATCH, BatchStatus
from batch.transition import move
from store.models import Batch
from store.repositories import batch as batches


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
