"""Files go: deleted by their owner, or collected when nobody can read them any more.

Collecting (contract row F-28) is safe to run twice or at the same time: removing bytes that are
gone already is no error. A file that a live batch reads is kept, whatever its own expiry says.
One whose bytes cannot be removed stands back behind all others, and is tried again next time.
"""

from __future__ import annotations

import logging
from typing import Final

from sqlalchemy.ext.asyncio import AsyncSession

from api.batch_errors import FileInUse, FileNotFound, StorageUnavailable
from batch.files import FileStore, parts
from batch.finish.retain import forget_results
from store.models import File
from store.repositories import file as files
from store.repositories import response as responses
from store.session import Database

COLLECT_AT_ONCE: Final = 200
MAX_STUCK: Final = 1000
"""So many that cannot be removed, and a collection ends: the store itself is away."""

INTERRUPTED_AFTER_S: Final = 86400.0

logger = logging.getLogger(__name__)


async def delete_file(session: AsyncSession, project_id: str, file_id: str) -> File:
    """Hide a file from now on; its bytes go after the commit, here or by `collect_files`.

    Raises:
        FileNotFound: No such file (contract rows F-21, F-26).
        FileInUse: A live batch reads it (contract row F-27, decision 0031).
    """
    file = await files.mark_deleted(session, project_id, file_id)
    if file is None:
        raise FileNotFound(file_id)
    # After the update: it waited for whoever was making the file a batch's input.
    reader = await files.live_batch_reading(session, file_id)
    if reader is not None:
        raise FileInUse(file_id, reader.id, reader.status)
    return file


async def collect_files(db: Database, file_store: FileStore) -> int:
    """Remove the bytes of deleted and expired files, and the results they were written from.

    Returns:
        How many files were collected.
    """
    num_collected = 0
    stuck: set[str] = set()
    while len(stuck) < MAX_STUCK:
        async with db.unit_of_work() as session:
            gone = await files.collectable(session, COLLECT_AT_ONCE, but=stuck)
            # Under their locks nobody can make one an input any more; who just did shows now.
            in_use = await files.read_by_live_batches(session, [file.id for file in gone])
            free = [file for file in gone if file.id not in in_use]
            for file in free:
                # Bytes first: a crash in between repeats the removal, and never forgets one.
                try:
                    await parts.delete_file(file_store, file)
                except (OSError, StorageUnavailable) as error:
                    stuck.add(file.id)
                    logger.warning("%s cannot be removed: %s", file.id, error)
                    continue
                await forget_results(db, file.id)
                file.collected_at = await files.now(session)
                num_collected += 1
        if len(gone) < COLLECT_AT_ONCE:
            break
    await file_store.discard_interrupted(older_than_s=INTERRUPTED_AFTER_S)
    return num_collected


async def collect_responses(db: Database) -> int:
    """Forget responses past their lifetime; how many."""
    async with db.unit_of_work() as session:
        return await responses.collect(session)
