"""The real worker processes, started as the supervisor starts them: whole lives, and kill -9."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from sqlalchemy import text

from batch.files import make_file_store
from batch.files.base import FileStore
from batch.queue import CeleryQueue
from batch.settings import BatchSettings
from batch.worker.app import make_app
from batch.worker.commands import Command, beat_command, worker_commands
from engine_adapter.client.fake_engine import FakeEngine, FakeSettings
from engine_adapter.client.fake_script import Script
from engine_adapter.client.fake_server import serving
from store.session import Database
from tests.fixtures.batches import (
    add_validating,
    events_of,
    file_lines,
    line,
    read_batch,
    row_statuses,
)

ROOT = Path(__file__).parents[3]


class Recorder(FakeEngine):
    """Remembers the prompt of every call, in order."""

    def __init__(self, settings: FakeSettings) -> None:
        super().__init__(settings)
        self.prompts: list[str] = []

    def script(self, path: str, body: Mapping[str, Any]) -> Script:
        self.prompts.append(body["messages"][0]["content"].split()[0])
        return super().script(path, body)


class Workers:
    """The worker processes of one installation."""

    def __init__(self, env: dict[str, str], log: Path) -> None:
        self._env = env
        self._log = log
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, command: Command) -> None:
        with self._log.open("ab") as out:
            self.processes[command.name] = subprocess.Popen(
                command.argv,
                cwd=ROOT,
                env=self._env | command.env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def children(self, name: str) -> list[psutil.Process]:
        return psutil.Process(self.processes[name].pid).children()

    def stop(self, limit_s: float) -> None:
        for process in self.processes.values():
            process.terminate()
        until = time.monotonic() + limit_s
        for process in self.processes.values():
            process.wait(max(0.1, until - time.monotonic()))

    def end(self) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
                process.wait()


@pytest.fixture
async def recorder() -> AsyncIterator[tuple[Recorder, str]]:
    """A fake engine that takes 50 ms per row, and its address."""
    engine = Recorder(FakeSettings(latency_s=0.05, max_running=16))
    async with serving(engine) as url:
        yield engine, url


@pytest.fixture
def settings(
    database_url: str,
    broker_url: str,
    recorder: tuple[Recorder, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> BatchSettings:
    monkeypatch.setenv("DATABASE_URL", database_url)
    monkeypatch.setenv("BROKER_URL", broker_url)
    monkeypatch.setenv("ENGINE_URLS", recorder[1])
    monkeypatch.setenv("COSERVE_HOME", str(tmp_path))
    monkeypatch.setenv("COSERVE_BATCH_MAX_IN_FLIGHT", "16")
    return BatchSettings()


@pytest.fixture
def file_store(settings: BatchSettings) -> FileStore:
    return make_file_store(settings)


@contextmanager
def _workers(settings: BatchSettings, tmp_path: Path) -> Iterator[Workers]:
    log = tmp_path / "worker.log"
    workers = Workers(dict(os.environ), log)
    try:
        for command in (*worker_commands(settings), beat_command(settings)):
            workers.start(command)
        yield workers
    except BaseException:
        sys.stderr.write(log.read_text()[-6000:])
        raise
    finally:
        workers.end()


async def _until_status(database: Database, batch_id: str, status: str, limit_s: float) -> None:
    async with asyncio.timeout(limit_s):
        while (found := (await read_batch(database, batch_id)).status) != status:
            assert found not in ("failed", "expired", "cancelled"), found
            await asyncio.sleep(0.1)


async def _until_num_done(database: Database, batch_id: str, num: int, limit_s: float) -> set[str]:
    async with asyncio.timeout(limit_s):
        while (await read_batch(database, batch_id)).num_completed < num:
            await asyncio.sleep(0.05)
    statuses = await row_statuses(database, batch_id)
    return {custom_id for custom_id, status in statuses.items() if status == "succeeded"}


async def _next_result_s(database: Database, batch_id: str, after_wall: str) -> float:
    """Seconds from an instant of the database's clock to the first result after it."""
    async with database.unit_of_work() as session:
        found = await session.scalar(
            text(
                "SELECT extract(epoch FROM min(created_at) - CAST(:at AS timestamptz))"
                " FROM row_results WHERE batch_id = :id AND created_at > CAST(:at AS timestamptz)"
            ),
            {"id": batch_id, "at": after_wall},
        )
    return float(found or 0.0)


async def _now(database: Database) -> str:
    async with database.unit_of_work() as session:
        return str(await session.scalar(text("SELECT clock_timestamp()")))


async def test_twenty_rows_from_validation_to_files(
    settings: BatchSettings,
    database: Database,
    file_store: FileStore,
    recorder: tuple[Recorder, str],
    tmp_path: Path,
) -> None:
    lines = [line(f"r{n}", f"r{n}") for n in range(20)]
    batch_id = await add_validating(database, file_store, lines)
    queue = CeleryQueue(make_app(settings))
    await queue.enqueue_validate(batch_id)
    with _workers(settings, tmp_path) as workers:
        await _until_status(database, batch_id, "completed", 40)
        workers.stop(limit_s=10)
        assert {name: one.returncode for name, one in workers.processes.items()} == {
            "worker-dispatch": 0,
            "worker-stages": 0,
            "beat": 0,
        }
    batch = await read_batch(database, batch_id)
    done = await file_lines(file_store, batch.output_file_id)
    assert {one["custom_id"] for one in done} == {f"r{n}" for n in range(20)}
    assert sorted(recorder[0].prompts) == sorted(f"r{n}" for n in range(20))


async def test_a_shutdown_puts_running_rows_back(
    settings: BatchSettings,
    database: Database,
    file_store: FileStore,
    recorder: tuple[Recorder, str],
    tmp_path: Path,
) -> None:
    engine, _ = recorder
    lines = [line(f"r{n}", f"r{n} fake:tokens=999 fake:token_ms=100") for n in range(40)]
    batch_id = await add_validating(database, file_store, lines)
    with _workers(settings, tmp_path) as workers:
        async with asyncio.timeout(40):
            while len(engine.running) + len(engine.waiting) < 16:
                await asyncio.sleep(0.05)
        started_s = time.monotonic()
        await asyncio.to_thread(workers.stop, 15)
        assert time.monotonic() - started_s < 10
        assert {one.returncode for one in workers.processes.values()} == {0}
    assert set((await row_statuses(database, batch_id)).values()) == {"pending"}
    async with database.unit_of_work() as session:
        assert await session.scalar(text("SELECT count(*) FROM dispatchers")) == 0
    async with asyncio.timeout(3):
        while engine.running or engine.waiting:
            await asyncio.sleep(0.05)


async def test_a_lost_message_costs_one_sweep(
    settings: BatchSettings, database: Database, file_store: FileStore, tmp_path: Path
) -> None:
    """Nobody asks for the validation: as if the broker had been wiped."""
    batch_id = await add_validating(database, file_store, [line("a"), line("b")])
    with _workers(settings, tmp_path):
        await _until_status(database, batch_id, "completed", 40)


@pytest.mark.contract("R-33", "R-34")
async def test_kill_9_of_pool_child_and_worker(
    settings: BatchSettings,
    database: Database,
    file_store: FileStore,
    recorder: tuple[Recorder, str],
    tmp_path: Path,
) -> None:
    num_rows = 3000
    engine, _ = recorder
    lines = [line(f"r{n}", f"r{n}") for n in range(num_rows)]
    batch_id = await add_validating(database, file_store, lines)
    queue = CeleryQueue(make_app(settings))
    await queue.enqueue_validate(batch_id)
    recovered_s: list[float] = []
    with _workers(settings, tmp_path) as workers:
        for num_done, whole_worker in ((300, False), (900, True)):
            await _until_num_done(database, batch_id, num_done, 60)
            assert engine.running, "a kill with nothing in flight proves nothing"
            name = "worker-dispatch"
            victims = (
                [workers.processes[name].pid]
                if whole_worker
                else [child.pid for child in workers.children(name)]
            )
            for pid in victims:
                os.kill(pid, 9)
            killed_at = await _now(database)
            # What was being written when the process died is committed by now, or never.
            await asyncio.sleep(0.5)
            committed = await _until_num_done(database, batch_id, num_done, 1)
            num_calls = len(engine.prompts)
            if whole_worker:
                workers.processes[name].wait()
                workers.start(worker_commands(settings)[0])
            await _until_num_done(database, batch_id, len(committed) + 100, 60)
            again = committed & set(engine.prompts[num_calls:])
            assert not again, f"{len(again)} finished rows were run again"
            recovered_s.append(await _next_result_s(database, batch_id, killed_at))
        await _until_status(database, batch_id, "completed", 120)
        batch = await read_batch(database, batch_id)
        assert (batch.num_completed, batch.num_failed) == (num_rows, 0)
        done = await file_lines(file_store, batch.output_file_id)
        assert len(done) == num_rows
        assert {one["custom_id"] for one in done} == {f"r{n}" for n in range(num_rows)}
        assert batch.error_file_id is None
        assert max(recovered_s) < 30
        assert (await events_of(database, batch_id)).count("completed") == 1
