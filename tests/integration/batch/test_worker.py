"""The real worker processes, started as the supervisor starts them: whole lives, and kill -9."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import redis
from sqlalchemy import text

from batch.files import make_file_store
from batch.files.base import FileStore
from batch.queue import STAGES, CeleryQueue
from batch.settings import BatchSettings
from batch.worker.app import make_app
from batch.worker.commands import worker_commands
from store.repositories import stage_count
from store.session import Database
from tests.fakes.engine import FakeSettings
from tests.fakes.server import serving
from tests.fixtures.batches import (
    PATIENCE_S,
    add_validating,
    events_of,
    file_lines,
    line,
    read_batch,
    row_statuses,
    until,
    until_completed,
    until_status,
)
from tests.fixtures.steered_engine import SteeredEngine
from tests.fixtures.workers import installation, workers

DISPATCH_WORKER = "worker-dispatch"
NUM_ROWS = 5
FULL_S = 5.0
"""More than a beat."""


@pytest.fixture
async def engine() -> AsyncIterator[tuple[SteeredEngine, str]]:
    """A fake engine that takes 50 ms per row, and its address."""
    engine = SteeredEngine(FakeSettings(latency_s=0.05, max_running=16))
    async with serving(engine) as url:
        yield engine, url


@pytest.fixture
def settings(
    database_url: str,
    broker_url: str,
    engine: tuple[SteeredEngine, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> BatchSettings:
    monkeypatch.setenv("DATABASE_URL", database_url)
    monkeypatch.setenv("BROKER_URL", broker_url)
    monkeypatch.setenv("ENGINE_URLS", engine[1])
    monkeypatch.setenv("COSERVE_HOME", str(tmp_path))
    monkeypatch.setenv("COSERVE_BATCH_MAX_IN_FLIGHT", "16")
    return BatchSettings()


@pytest.fixture
def file_store(settings: BatchSettings) -> FileStore:
    return make_file_store(settings)


async def _written_at_s(database: Database, batch_id: str) -> dict[str, float]:
    """By custom id: when the write of its result began, seconds since the epoch."""
    async with database.unit_of_work() as session:
        found = await session.execute(
            text(
                "SELECT r.custom_id, extract(epoch FROM x.created_at)::float8 AS at_s"
                " FROM row_results x JOIN batch_rows r ON r.id = x.row_id WHERE x.batch_id = :id"
            ),
            {"id": batch_id},
        )
        return {row.custom_id: row.at_s for row in found}


async def test_twenty_rows_from_validation_to_files(
    settings: BatchSettings,
    database: Database,
    file_store: FileStore,
    engine: tuple[SteeredEngine, str],
    tmp_path: Path,
) -> None:
    custom_ids = [f"r{n}" for n in range(20)]
    batch_id = await add_validating(database, file_store, [line(one, one) for one in custom_ids])
    queue = CeleryQueue(make_app(settings))
    await queue.wake(STAGES)
    with workers(installation(settings), tmp_path / "log") as started:
        await until_status(database, batch_id, "completed")
        await asyncio.to_thread(started.stop, PATIENCE_S)
        assert {name: one.returncode for name, one in started.processes.items()} == {
            DISPATCH_WORKER: 0,
            "worker-stages": 0,
            "worker-sweep": 0,
            "beat": 0,
        }
    batch = await read_batch(database, batch_id)
    done = await file_lines(file_store, batch.output_file_id)
    assert {one["custom_id"] for one in done} == set(custom_ids)
    assert engine[0].asked == dict.fromkeys(custom_ids, 1)
    async with database.unit_of_work() as session:
        stages = {one.stage: one for one in await stage_count.totals(session)}
    assert {"validate", "dispatch", "finalize"} <= stages.keys(), "runs are counted"
    assert not any(one.num_failed for one in stages.values())


async def test_a_shutdown_puts_running_rows_back(
    settings: BatchSettings,
    database: Database,
    file_store: FileStore,
    engine: tuple[SteeredEngine, str],
    tmp_path: Path,
) -> None:
    held, _ = engine
    held.held = True  # for ever: who waited for the rows would not end
    lines = [line(f"r{n}", f"r{n}") for n in range(40)]
    batch_id = await add_validating(database, file_store, lines)
    with workers(installation(settings), tmp_path / "log") as started:
        await until(lambda: len(held.running) + len(held.waiting) == 16)
        await asyncio.to_thread(started.stop, PATIENCE_S)
        assert {one.returncode for one in started.processes.values()} == {0}
    assert set((await row_statuses(database, batch_id)).values()) == {"pending"}
    async with database.unit_of_work() as session:
        assert await session.scalar(text("SELECT count(*) FROM dispatchers")) == 0
    await until(lambda: not held.running and not held.waiting)


async def test_a_full_broker_costs_no_batch(
    settings: BatchSettings, database: Database, file_store: FileStore, tmp_path: Path
) -> None:
    """Nothing can be sent, or noted as taken, until it has room; then the sweep asks again.

    The message of the validation is lost for good, as if the broker had been wiped.
    """
    queue = CeleryQueue(make_app(settings))
    with (
        redis.Redis.from_url(settings.broker_url) as broker,
        workers(installation(settings), tmp_path / "log") as started,
    ):
        # One that starts now ends, and its supervisor starts it again until there is room.
        num_workers = len(worker_commands(settings))
        await until(
            lambda: started.log.exists() and started.log.read_text().count(" ready.") == num_workers
        )
        try:
            broker.config_set("maxmemory", 1)
            lines = [line(f"r{n}") for n in range(NUM_ROWS)]
            batch_id = await add_validating(database, file_store, lines)
            await queue.wake(STAGES)
            await asyncio.sleep(FULL_S)
            assert (await read_batch(database, batch_id)).status == "validating"
        finally:
            broker.config_set("maxmemory", 0)
        await until_status(database, batch_id, "completed")
        assert all(one.poll() is None for one in started.processes.values())


@pytest.mark.contract("R-33", "R-34")
@pytest.mark.parametrize(
    "whole_worker",
    [
        pytest.param(False, marks=pytest.mark.thorough, id="pool-child"),
        pytest.param(True, id="worker"),
    ],
)
async def test_kill_9_in_the_middle_of_a_batch(
    settings: BatchSettings,
    database: Database,
    file_store: FileStore,
    engine: tuple[SteeredEngine, str],
    tmp_path: Path,
    whole_worker: bool,
) -> None:
    steered, _ = engine
    custom_ids = [f"r{n}" for n in range(400)]
    batch_id = await add_validating(database, file_store, [line(one, one) for one in custom_ids])
    await CeleryQueue(make_app(settings)).wake(STAGES)
    with workers(installation(settings), tmp_path / "log") as started:
        await until_completed(database, batch_id, 50)
        steered.held = True
        await until(lambda: steered.running)
        # Nothing is awaited up to the kill: the engine, in this process, answers no row meanwhile.
        victims = [child.pid for child in started.children(DISPATCH_WORKER)]
        if whole_worker:
            victims = [started.processes[DISPATCH_WORKER].pid]
        for pid in victims:
            os.kill(pid, 9)
        steered.held = False
        if whole_worker:
            await asyncio.to_thread(started.processes[DISPATCH_WORKER].wait)
            started.start(worker_commands(settings)[0])
        await until_status(database, batch_id, "completed")
    batch = await read_batch(database, batch_id)
    assert (batch.num_completed, batch.num_failed) == (len(custom_ids), 0)
    done = await file_lines(file_store, batch.output_file_id)
    assert sorted(str(one["custom_id"]) for one in done) == sorted(custom_ids)
    assert batch.error_file_id is None
    assert (await events_of(database, batch_id)).count("completed") == 1
    assert steered.asked.total() > len(custom_ids), "what was in flight is run again"
    written_at_s = await _written_at_s(database, batch_id)
    again = {custom_id for custom_id, at_s in steered.calls if at_s > written_at_s[custom_id]}
    assert not again, f"{len(again)} finished rows were run again"
