"""Files of results are written in parts: what is written stays, whoever is killed."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sqlalchemy import text

from batch.files.base import ByteRange, FileStore, StoredObject
from batch.files.local import LocalFileStore
from batch.files.memory import MemoryFileStore
from batch.files.parts import check_there, stream_file
from batch.finish import collect
from batch.finish.finalize import RUN_S, finalize
from batch.states import BatchStatus
from engine_adapter.client.http import HttpEngineClient
from store.models import File
from store.repositories import file as files
from store.session import Database
from tests.fakes.seams import ManualClock
from tests.fixtures.batches import PATIENCE_S, Bench, add_batch, line, output_lines, read_batch
from tests.fixtures.supervised import ROOT

NUM_LINES = 6
PROJECT = "proj_default"


class _Counts(LocalFileStore):
    """Notes what is put into it."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.put_keys: list[str] = []

    async def put(self, key: str, chunks: AsyncIterator[bytes]) -> StoredObject:
        self.put_keys.append(key)
        return await super().put(key, chunks)


class _Slow(MemoryFileStore):
    """Each object takes longer than a run may last."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self._clock = clock

    async def put(self, key: str, chunks: AsyncIterator[bytes]) -> StoredObject:
        self._clock.advance(RUN_S)
        return await super().put(key, chunks)


@pytest.fixture
async def finished(bench: Bench, engine: HttpEngineClient, database: Database) -> str:
    """A batch in `finalizing` with an answer for every line."""
    lines = [line(f"r{n}", f"fake:text=r{n}") for n in range(NUM_LINES)]
    batch_id = await add_batch(database, bench.file_store, lines)
    await bench.dispatch(engine)
    return batch_id


async def _output(database: Database, batch_id: str) -> File:
    batch = await read_batch(database, batch_id)
    assert batch.output_file_id is not None
    async with database.unit_of_work() as session:
        file = await files.get(session, PROJECT, batch.output_file_id)
    assert file is not None
    return file


async def _content(file_store: FileStore, file: File) -> bytes:
    whole = ByteRange(0, file.size_bytes)
    await check_there(file_store, file, whole)
    return b"".join([chunk async for chunk in stream_file(file_store, file, whole)])


async def _stored_lines(database: Database, batch_id: str) -> bytes:
    async with database.unit_of_work() as session:
        found = await session.scalars(
            text("SELECT line FROM row_results WHERE batch_id = :id ORDER BY seq"),
            {"id": batch_id},
        )
        return b"".join(bytes(one) + b"\n" for one in found)


async def test_killed_in_the_middle_it_goes_on_behind_what_is_written(
    finished: str, database: Database, database_url: str, tmp_path: Path
) -> None:
    argv = [sys.executable, "-m", "tests.fixtures.stuck_finalization"]
    argv += [database_url, str(tmp_path), finished, "4"]
    with subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE) as killed:
        assert killed.stdout is not None
        async with asyncio.timeout(PATIENCE_S):
            assert await asyncio.to_thread(killed.stdout.readline) == b"stuck\n"
            # Where one is at it, another leaves it alone.
            assert await finalize(database, LocalFileStore(tmp_path), finished) is None
        killed.kill()
    store = _Counts(tmp_path)
    async with asyncio.timeout(PATIENCE_S):
        # The server notices a moment later that the killed one is gone.
        while (ended := await finalize(database, store, finished, part_bytes=1)) is None:
            await asyncio.sleep(0.02)
    assert ended is BatchStatus.COMPLETED
    file = await _output(database, finished)
    assert store.put_keys == [f"{file.id}-4", f"{file.id}-5", f"{file.id}-6"]
    assert file.part_bytes is not None
    assert len(file.part_bytes) == NUM_LINES
    assert await _content(store, file) == await _stored_lines(database, finished)
    assert len(await output_lines(database, finished, succeeded=True)) == NUM_LINES


async def test_a_store_however_slow_is_given_as_many_runs_as_it_takes(
    finished: str, database: Database
) -> None:
    clock = ManualClock()
    store = _Slow(clock)
    reached = [
        await finalize(database, store, finished, clock=clock, part_bytes=1)
        for _ in range(NUM_LINES)
    ]
    assert reached == [BatchStatus.FINALIZING] * (NUM_LINES - 1) + [BatchStatus.COMPLETED]
    file = await _output(database, finished)
    assert await _content(store, file) == await _stored_lines(database, finished)
    async with database.unit_of_work() as session:
        assert await session.scalar(text("SELECT count(*) FROM output_parts")) == 0


async def test_all_parts_are_collected(finished: str, database: Database) -> None:
    store = MemoryFileStore()
    assert await finalize(database, store, finished, part_bytes=1) is BatchStatus.COMPLETED
    assert len(store.keys()) == NUM_LINES
    async with database.unit_of_work() as session:
        await collect.delete_file(session, PROJECT, (await _output(database, finished)).id)
    assert await collect.collect_files(database, store) == 1
    assert store.keys() == []
