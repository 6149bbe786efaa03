"""Files go: deleted by their owner, or collected when nobody can read them any more.

Collecting (row F-28) is safe to run twice or at the same time: removing bytes that are
gone already is no error. A file that a live batch reads is kept, whatever its own expiry says.
One whose bytes cannot be removed stands back behind all others, whatever their number, and is tried
again by the next run (batch/removal.py). Which kinds there are: batch/finish/duties.py.
"""

from __future__ import annotations

from sqlalchemy.ext.asyncio import AsyncSession

from api.batch_errors import FileInUse, FileNotFound
from batch.files import FileStore, parts
from batch.finish.retain import forget_results
from batch.removal import COLLECT_AT_ONCE, Budget, forget, in_steps, removed
from store.models import File
from store.repositories import conversation as conversations
from store.repositories import file as files
from store.repositories import response as responses
from store.repositories import statements
from store.session import Database


async def delete_file(session: AsyncSession, project_id: str, file_id: str) -> File:
    """Hide a file from now on; its bytes go after the commit, here or by `collect_files`.

    Raises:
        FileNotFound: No such file (rows F-21, F-26).
        FileInUse: A live batch reads it (row F-27).
    """
    file = await files.mark_deleted(session, project_id, file_id)
    if file is None:
        raise FileNotFound(file_id)
    # After the update: it waited for whoever was making the file a batch's input.
    reader = await files.live_batch_reading(session, file_id)
    if reader is not None:
        raise FileInUse(file_id, reader.id, reader.status)
    return file


async def collect_files(db: Database, file_store: FileStore, budget: Budget | None = None) -> int:
    """Remove the bytes of deleted and expired files, and the results they were written from.

    Returns:
        How many files were collected.
    """
    budget = budget or Budget.of()
    num_collected = 0
    async with db.unit_of_work() as session:
        began_at = await statements.now(session)

    async def step(failed_before: bool) -> int:
        nonlocal num_collected
        async with db.unit_of_work() as session:
            before = began_at if failed_before else None
            gone = await files.collectable(session, COLLECT_AT_ONCE, failed_before=before)
            # Under their locks nobody can make one an input any more; who just did shows now.
            in_use = await files.read_by_live_batches(session, [file.id for file in gone])
            free = {file.id: file for file in gone if file.id not in in_use}
            # Bytes first: a crash in between repeats the removal, and never forgets one.
            done = await removed(free, lambda id_: parts.delete_file(file_store, free[id_]))
            now = await statements.now(session)
            for file in free.values():
                if file.id not in done:
                    file.removal_failed_at = now
                    continue
                await forget_results(db, file.id)
                file.collected_at = now
                num_collected += 1
        return len(gone)

    await in_steps(step, budget)
    return num_collected


async def collect_responses(db: Database, budget: Budget | None = None) -> int:
    """Forget responses past their lifetime; how many."""
    return await forget(db, responses.collect, budget)


async def collect_conversations(db: Database, budget: Budget | None = None) -> int:
    """Forget conversations past their lifetime, with their items; how many."""
    return await forget(db, conversations.collect, budget)
