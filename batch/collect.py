"""Files go: deleted by their owner, or collected when nobody can read them any more.

Collecting (contract row F-28) is safe to run twice or at the same time: removing bytes that are
gone already is no error. A file that a live batch reads is kept, whatever its own expiry says.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy.ext.asyncio import AsyncSession

from batch.errors import FileInUse, FileNotFound
from batch.files import FileStore
from store.models import File
from store.repositories import file as files
from store.session import Database

COLLECT_AT_ONCE: Final = 200
INTERRUPTED_AFTER_S: Final = 86400.0


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
    """Remove the bytes of deleted and expired files; returns how many files were collected."""
    num_collected = 0
    while True:
        async with db.unit_of_work() as session:
            gone = await files.collectable(session, COLLECT_AT_ONCE)
            # Under their locks nobody can make one an input any more; who just did shows now.
            in_use = await files.read_by_live_batches(session, [file.id for file in gone])
            free = [file for file in gone if file.id not in in_use]
            for file in free:
                # Bytes first: a crash in between repeats the removal, and never forgets one.
                await file_store.delete(file.storage_key)
                file.collected_at = await files.now(session)
        num_collected += len(free)
        if len(gone) < COLLECT_AT_ONCE:
            break
    await file_store.discard_interrupted(older_than_s=INTERRUPTED_AFTER_S)
    return num_collected
