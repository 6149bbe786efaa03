"""What a project may have at once, however it comes by it: batches, and stored bytes of any kind.

Counted when something is added, under a lock, so that two at once cannot both take the last place.
Nothing is reserved and nothing given back: what has ended, was deleted or has expired does not
count. Output files and answers count once they are there; they are never refused. Parts of an
upload count until they are a file.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy.ext.asyncio import AsyncSession

from api.batch_errors import StorageQuotaExceeded, TooManyBatches
from store.repositories import quota as quotas

LIVE_BATCHES: Final = 10_000
BATCHES_PER_HOUR: Final = 10_000
"""Of projects without limits of their own: some minutes of work for the stages, whatever is in the
batches."""


async def check_batch(session: AsyncSession, project_id: str) -> None:
    """Refuse a new batch that the project may not have; add it in the same transaction.

    Raises:
        TooManyBatches: It has as many live ones, or made as many within an hour.
    """
    project = await quotas.find_project(session, project_id)
    await quotas.lock_project(session, project_id)
    limit = LIVE_BATCHES if project.live_batches is None else project.live_batches
    number = await quotas.live_batches(session, project_id)
    if number >= limit:
        raise TooManyBatches(
            f"This project has {number:,} batches that have not ended; the limit is {limit:,}."
        )
    limit = BATCHES_PER_HOUR if project.batches_per_hour is None else project.batches_per_hour
    number = await quotas.batches_of_hour(session, project_id)
    if number >= limit:
        raise TooManyBatches(
            f"This project created {number:,} batches within an hour; the limit is {limit:,}."
        )


async def check_storage(session: AsyncSession, project_id: str, num_bytes: int) -> None:
    """Refuse so many more bytes than the project may store; add them in the same transaction.

    Raises:
        StorageQuotaExceeded: It would store more than it may.
    """
    project = await quotas.find_project(session, project_id)
    if project.stored_bytes is None:
        return
    await quotas.lock_project(session, project_id)
    stored = await quotas.stored_bytes(session, project_id)
    if stored + num_bytes > project.stored_bytes:
        raise StorageQuotaExceeded(
            f"This project stores {stored:,} bytes of files, responses and conversations; the "
            f"limit is {project.stored_bytes:,}. Delete some, or wait until some expire."
        )
