"""Garbage: bytes of files that nobody can read any more (contract row F-28).

Safe to run twice or at the same time: removing bytes that are gone already is no error. A file
that a live batch reads is kept, whatever its own expiry says.
"""

from __future__ import annotations

from typing import Final

from batch.files import FileStore
from store.repositories import file as files
from store.session import Database

COLLECT_AT_ONCE: Final = 200
INTERRUPTED_AFTER_S: Final = 86400.0


async def collect_files(db: Database, file_store: FileStore) -> int:
    """Remove the bytes of deleted and expired files; returns how many files were collected."""
    num_collected = 0
    while True:
        async with db.unit_of_work() as session:
            gone = await files.collectable(session, COLLECT_AT_ONCE)
            for file in gone:
                # Bytes first: a crash in between repeats the removal, and never forgets one.
                await file_store.delete(file.storage_key)
                file.collected_at = await files.now(session)
        num_collected += len(gone)
        if len(gone) < COLLECT_AT_ONCE:
            break
    await file_store.discard_interrupted(older_than_s=INTERRUPTED_AFTER_S)
    return num_collected
