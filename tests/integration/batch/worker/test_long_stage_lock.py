"""Long stages of one project run one at a time; nobody else waits for them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import text

from batch.files import FileStore, make_file_store
from batch.settings import BatchSettings
from batch.worker import long_stage_lock as turns
from batch.worker.commands import NUM_STAGE_PROCESSES
from batch.worker.long_stage_lock import LONG_BYTES, LONG_LINES, long_stage_lock
from store.session import Database
from tests.fakes.engine import FakeEngine
from tests.fakes.server import serving
from tests.fixtures.batches import (
    Bench,
    add_project,
    add_validating,
    line,
    read_batch,
    until_status,
)
from tests.fixtures.workers import installation, workers

MINE, OTHERS = "proj_default", "proj_other"


async def _set(database: Database, statement: str, batch_id: str, value: int) -> None:
    async with database.unit_of_work() as session:
        await session.execute(text(statement), {"id": batch_id, "value": value})


async def _long(database: Database, file_store: FileStore, project_id: str = MINE) -> str:
    await add_project(database, project_id)
    batch_id = await add_validating(database, file_store, [line("a")], project_id=project_id)
    await _set(
        database,
        "UPDATE files SET size_bytes = :value"
        " WHERE id = (SELECT input_file_id FROM batches WHERE id = :id)",
        batch_id,
        LONG_BYTES,
    )
    return batch_id


async def test_a_project_has_one_turn_for_long_stages(bench: Bench, database: Database) -> None:
    first, second = await _long(database, bench.file_store), await _long(database, bench.file_store)
    other = await _long(database, bench.file_store, OTHERS)
    short = await add_validating(database, bench.file_store, [line("a")])
    async with long_stage_lock(database, first) as may_run:
        assert may_run
        for batch_id, allowed in ((second, False), (other, True), (short, True)):
            async with long_stage_lock(database, batch_id) as beside:
                assert beside is allowed
    async with long_stage_lock(database, second) as may_run:
        assert may_run


async def test_a_turn_lasts_as_long_as_its_stage(
    bench: Bench, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server would end it after a time without a word."""
    monkeypatch.setattr(turns, "IDLE_LIMIT_S", 4.0)  # a busy machine stops a process for a second
    monkeypatch.setattr(turns, "BE_HEARD_S", 0.1)
    first, second = await _long(database, bench.file_store), await _long(database, bench.file_store)
    async with long_stage_lock(database, first):
        await asyncio.sleep(6.0)
        async with long_stage_lock(database, second) as may_run:
            assert not may_run


async def test_many_lines_and_files_written_in_part_make_a_stage_long(
    bench: Bench, database: Database
) -> None:
    holder = await _long(database, bench.file_store)
    many, parted = [await add_validating(database, bench.file_store, [line("a")]) for _ in range(2)]
    await _set(database, "UPDATE batches SET num_total = :value WHERE id = :id", many, LONG_LINES)
    await _set(
        database,
        "INSERT INTO output_parts VALUES ('file-x', 1, :id, :value, 1, 1, '')",
        parted,
        1,
    )
    async with long_stage_lock(database, holder):
        for batch_id in (many, parted):
            async with long_stage_lock(database, batch_id) as may_run:
                assert not may_run


@contextmanager
def _released(pipes: list[Path]) -> Iterator[None]:
    """Whoever still waits for the pipes goes on when the block ends."""
    try:
        yield
    finally:
        for pipe in pipes:
            os.close(os.open(pipe, os.O_RDWR | os.O_NONBLOCK))


async def test_stuck_validations_of_one_project_hold_up_no_other(
    database: Database,
    database_url: str,
    broker_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serving(FakeEngine()) as engine_url:
        monkeypatch.setenv("DATABASE_URL", database_url)
        monkeypatch.setenv("BROKER_URL", broker_url)
        monkeypatch.setenv("ENGINE_URLS", engine_url)
        monkeypatch.setenv("COSERVE_HOME", str(tmp_path))
        settings = BatchSettings()
        file_store = make_file_store(settings)
        pipes = []
        for _ in range(2 * NUM_STAGE_PROCESSES):
            key = (await read_batch(database, await _long(database, file_store))).input_file_id
            pipe = tmp_path / "files/objects" / key[-2:] / key
            pipe.unlink()
            os.mkfifo(pipe)  # who opens it to read waits for a writer
            pipes.append(pipe)
        with _released(pipes), workers(installation(settings), tmp_path / "log"):
            await add_project(database, OTHERS)
            batch_id = await add_validating(database, file_store, [line("a")], project_id=OTHERS)
            await until_status(database, batch_id, "completed")
            async with database.unit_of_work() as session:
                num_waiting = await session.scalar(
                    text("SELECT count(*) FROM batches WHERE status = 'validating'")
                )
                # None of the stuck ones had to be given up for it.
                num_failed = await session.scalar(
                    text("SELECT num_failed FROM stage_counts WHERE stage = 'validate'")
                )
        assert num_waiting == len(pipes)
        assert not num_failed
