"""Deleting a file while it becomes a batch's input, and collecting while others do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable

import pytest

from api.batch_errors import FileInUse, InvalidInputFile, StorageUnavailable
from api.batch_shapes import CreateBatch
from batch.files.memory import MemoryFileStore
from batch.finish.collect import collect_files, delete_file
from batch.intake.create import create
from batch.intake.upload import Upload, record
from batch.removal import COLLECT_AT_ONCE
from store.models import DEFAULT_PROJECT_ID, Batch, File
from store.repositories import arrival as arrivals
from store.session import Database
from store.types import new_id


async def nothing() -> AsyncIterator[bytes]:
    yield b"{}"


async def add_file(db: Database, store: MemoryFileStore) -> str:
    file_id = new_id("file-")
    stored = await store.put(file_id, nothing())
    async with db.unit_of_work() as session:
        await arrivals.announce(session, file_id)
        upload = Upload(file_id, "in.jsonl", "batch", stored, 86400)
        await record(session, upload, DEFAULT_PROJECT_ID)
    return file_id


def request(file_id: str) -> CreateBatch:
    return CreateBatch(input_file_id=file_id, endpoint="/v1/completions", completion_window="24h")


async def delete(db: Database, file_id: str) -> File:
    async with db.unit_of_work() as session:
        return await delete_file(session, DEFAULT_PROJECT_ID, file_id)


async def create_batch(db: Database, file_id: str) -> Batch:
    async with db.unit_of_work() as session:
        return await create(session, DEFAULT_PROJECT_ID, request(file_id))


async def test_a_deletion_waits_for_a_creation_and_is_refused(database: Database) -> None:
    file_id = await add_file(database, MemoryFileStore())
    async with asyncio.TaskGroup() as tasks, database.unit_of_work() as session:
        batch = await create(session, DEFAULT_PROJECT_ID, request(file_id))
        deletion = tasks.create_task(_outcome(delete(database, file_id)))
        await asyncio.sleep(0.3)
        assert not deletion.done()
    refused = deletion.result()
    assert isinstance(refused, FileInUse)
    assert batch.id in refused.message
    assert (refused.current, refused.status) == ("validating", 409)


async def test_a_creation_waits_for_a_deletion_and_finds_nothing(database: Database) -> None:
    file_id = await add_file(database, MemoryFileStore())
    async with asyncio.TaskGroup() as tasks, database.unit_of_work() as session:
        await delete_file(session, DEFAULT_PROJECT_ID, file_id)
        creation = tasks.create_task(_outcome(create_batch(database, file_id)))
        await asyncio.sleep(0.3)
        assert not creation.done()
    assert isinstance(creation.result(), InvalidInputFile)


async def _outcome(call: Awaitable[object]) -> object:
    try:
        return await call
    except (FileInUse, InvalidInputFile) as refused:
        return refused


async def test_more_files_than_are_collected_at_once(database: Database) -> None:
    store = MemoryFileStore()
    ids = [await add_file(database, store) for _ in range(3)]
    async with database.unit_of_work() as session:
        for number in range(COLLECT_AT_ONCE):
            gone = Upload(f"file-gone{number}", "x", "batch", await store.put("x", nothing()), 60)
            await arrivals.announce(session, gone.file_id)
            file = await record(session, gone, DEFAULT_PROJECT_ID)
            file.deleted_at = file.created_at
    await delete(database, ids[1])
    await store.delete("x")
    assert await collect_files(database, store) == COLLECT_AT_ONCE + 1
    assert store.keys() == sorted([ids[0], ids[2]])
    assert await collect_files(database, store) == 0


class StuckStore(MemoryFileStore):
    """A store that cannot delete some of its objects at the moment."""

    def __init__(self) -> None:
        super().__init__()
        self.stuck: dict[str, Exception] = {}

    async def delete(self, key: str) -> None:
        if key in self.stuck:
            raise self.stuck[key]
        await super().delete(key)


async def test_a_collection_that_fails_forgets_nothing(database: Database) -> None:
    store = StuckStore()
    file_id = await add_file(database, store)
    await delete(database, file_id)
    store.stuck[file_id] = ConnectionError("away")
    assert await collect_files(database, store) == 0
    store.stuck.clear()
    assert await collect_files(database, store) == 1
    assert store.keys() == []


@pytest.mark.parametrize("error", [PermissionError("immutable"), StorageUnavailable()])
async def test_what_cannot_be_removed_keeps_no_other_file(
    database: Database, error: Exception
) -> None:
    store = StuckStore()
    ids = [await add_file(database, store) for _ in range(3)]
    for file_id in ids:  # the longest gone first
        await delete(database, file_id)
    store.stuck[ids[0]] = error
    assert await collect_files(database, store) == 2
    assert store.keys() == ids[:1]
