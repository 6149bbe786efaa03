"""The S3 file store before a real server: a batch's whole life, a server that dies, wrong keys."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from api.batch_errors import StorageUnavailable, StoredObjectMissing
from batch.files.s3 import ObjectFileStore
from batch.finish.finalize import finalize
from batch.intake.validate import validate
from batch.run.dispatch import Dispatcher, DispatchLimits
from batch.states import BatchStatus
from engine_adapter.client.http import HttpEngineClient
from store.session import Database
from tests.fakes.seams import MemoryQueue
from tests.fixtures.batches import Bench, add_validating, file_lines, line, read_batch
from tests.fixtures.s3_server import BUCKET, S3Server


async def chunks(*data: bytes) -> AsyncIterator[bytes]:
    for one in data:
        yield one


async def test_a_batch_lives_in_a_bucket(
    bench: Bench,
    engine: HttpEngineClient,
    database: Database,
    s3_server: S3Server,
    s3_prefix: str,
    s3_store: ObjectFileStore,
) -> None:
    lines = [line(f"r{n}", f"fake:text=a{n}") for n in range(300)]
    lines.append(line("bad", "fake:status=400"))
    batch_id = await add_validating(database, s3_store, lines)
    assert await validate(database, s3_store, batch_id) is BatchStatus.IN_PROGRESS
    held = await bench.lease(engine.url)
    ending = await Dispatcher(
        held, engine, database, s3_store, MemoryQueue(), bench.clock, DispatchLimits(),
        drain=asyncio.Event(),
    ).run()  # fmt: skip
    assert ending.num_written == 301
    assert await finalize(database, s3_store, batch_id) is BatchStatus.COMPLETED
    batch = await read_batch(database, batch_id)
    done = await file_lines(s3_store, batch.output_file_id)
    assert {one["custom_id"] for one in done} == {f"r{n}" for n in range(300)}
    (error,) = await file_lines(s3_store, batch.error_file_id)
    assert error["custom_id"] == "bad"
    names = {path.name for path in s3_server.files(s3_prefix)}
    assert names == {batch.input_file_id, batch.output_file_id, batch.error_file_id}


async def test_a_server_that_dies_in_the_middle_of_an_upload(
    s3_server: S3Server, s3_store: ObjectFileStore
) -> None:
    await s3_store.put("file-1", chunks(b"old"))

    async def cut_off() -> AsyncIterator[bytes]:
        yield b"x" * 11_000_000
        s3_server.kill()
        yield b"x" * 11_000_000

    try:
        with pytest.raises(StorageUnavailable):
            await s3_store.put("file-1", cut_off())
        with pytest.raises(StorageUnavailable):
            await s3_store.size("file-1")
    finally:
        s3_server.start()
    assert await s3_store.read_range("file-1", 0, 3) == b"old"
    assert await s3_store.size("file-1") == 3


async def test_a_key_that_the_server_does_not_know(
    s3_store: ObjectFileStore, s3_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await s3_store.put("file-1", chunks(b"mine"))
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    stranger = ObjectFileStore.from_url(f"s3://{BUCKET}/{s3_prefix}")
    with pytest.raises(StorageUnavailable):
        await stranger.put("file-1", chunks(b"theirs"))
    with pytest.raises(StorageUnavailable):
        await stranger.read_range("file-1", 0, 4)
    assert await s3_store.read_range("file-1", 0, 4) == b"mine"


async def test_a_prefix_is_a_wall(s3_store: ObjectFileStore, s3_prefix: str) -> None:
    await s3_store.put("file-1", chunks(b"mine"))
    with pytest.raises(StoredObjectMissing):
        await ObjectFileStore.from_url(f"s3://{BUCKET}/{s3_prefix}x").size("file-1")
