"""Real worker processes: two beats, every message five times, and one that was stopped for long."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from batch.files import make_file_store
from batch.files.base import FileStore
from batch.queue import DISPATCH, STAGES
from batch.settings import BatchSettings
from batch.worker.app import make_app
from batch.worker.commands import beat_command
from store.session import Database
from tests.fakes.engine import FakeEngine, FakeSettings
from tests.fakes.journal import SERVED, Journal, read_journal
from tests.fakes.server import serving
from tests.fixtures.batches import (
    PATIENCE_S,
    add_validating,
    events_of,
    file_lines,
    line,
    read_batch,
    until_completed,
    until_status,
)
from tests.fixtures.workers import Workers, installation, workers

pytestmark = pytest.mark.thorough

NUM_ROWS = 600
ENGINE = FakeSettings(latency_s=0.2, max_running=32)


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "journal.jsonl"


@pytest.fixture
async def engine_url(journal: Path) -> AsyncIterator[str]:
    async with serving(FakeEngine(ENGINE), journal=Journal(journal)) as url:
        yield url


@pytest.fixture
def settings(
    database_url: str,
    broker_url: str,
    engine_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> BatchSettings:
    monkeypatch.setenv("DATABASE_URL", database_url)
    monkeypatch.setenv("BROKER_URL", broker_url)
    monkeypatch.setenv("ENGINE_URLS", engine_url)
    monkeypatch.setenv("COSERVE_HOME", str(tmp_path))
    return BatchSettings()


@pytest.fixture
def file_store(settings: BatchSettings) -> FileStore:
    return make_file_store(settings)


def _lines() -> list[bytes]:
    return [line(f"r{n}", f"fake:text=r{n}") for n in range(NUM_ROWS)]


async def _completed_once(database: Database, file_store: FileStore, batch_id: str) -> None:
    await until_status(database, batch_id, "completed")
    batch = await read_batch(database, batch_id)
    assert (batch.num_completed, batch.num_failed, batch.num_results) == (NUM_ROWS, 0, NUM_ROWS)
    done = await file_lines(file_store, batch.output_file_id)
    assert Counter(str(one["custom_id"]) for one in done) == {f"r{n}": 1 for n in range(NUM_ROWS)}
    events = await events_of(database, batch_id)
    for once in ("in_progress", "finalizing", "completed"):
        assert events.count(once) == 1, events


def _served(journal: Path) -> Counter[str]:
    return Counter(entry.prompt for entry in read_journal(journal) if entry.event == SERVED)


async def test_two_beats_and_every_message_five_times(
    settings: BatchSettings,
    database: Database,
    file_store: FileStore,
    journal: Path,
    tmp_path: Path,
) -> None:
    batch_id = await add_validating(database, file_store, _lines())
    app = make_app(settings)

    def ask(task: str) -> None:
        for _ in range(5):
            app.send_task(task)

    ask(STAGES)
    with workers(installation(settings), tmp_path / "log") as all_:
        all_.start(beat_command(settings), name="second beat")
        for num_done in (1, 200, 400):
            await until_completed(database, batch_id, num_done)
            ask(STAGES)
            ask(DISPATCH)
        await _completed_once(database, file_store, batch_id)
        ask(STAGES)
        ask(DISPATCH)
        await asyncio.sleep(2)
        assert all_.processes["second beat"].poll() is None
    # Nobody died and no lease was lost: each line was sent to the engine once.
    assert set(_served(journal).values()) == {1}
    assert len(_served(journal)) == NUM_ROWS
    await _completed_once(database, file_store, batch_id)


async def test_a_stopped_dispatcher_that_goes_on_changes_nothing(
    settings: BatchSettings,
    database: Database,
    file_store: FileStore,
    journal: Path,
    engine_url: str,
    tmp_path: Path,
) -> None:
    """SIGSTOP with rows in flight, for longer than any lease: another one goes on meanwhile."""
    batch_id = await add_validating(database, file_store, _lines())
    make_app(settings).send_task(STAGES)
    log = tmp_path / "log"
    with workers(installation(settings), log) as all_:
        await until_completed(database, batch_id, 100)
        (stopped,) = _dispatching(all_, engine_url)
        os.kill(stopped.pid, signal.SIGSTOP)
        num_at_stop = (await read_batch(database, batch_id)).num_completed
        await until_completed(database, batch_id, num_at_stop + 100)
        os.kill(stopped.pid, signal.SIGCONT)
        await _completed_once(database, file_store, batch_id)
        async with asyncio.timeout(PATIENCE_S):
            while "lease_lost=True" not in log.read_text():
                await asyncio.sleep(0.1)
    # Its answers were refused one and all: what it wrote was written before it was stopped.
    assert sum(num - 1 for num in _served(journal).values()) > 0
    assert len(_served(journal)) == NUM_ROWS
    await _completed_once(database, file_store, batch_id)


def _dispatching(started: Workers, engine_url: str) -> list[psutil.Process]:
    """The pool children that are connected to the engine."""
    port = int(engine_url.rsplit(":", 1)[1])
    return [
        child
        for child in started.children("worker-dispatch")
        if any(link.raddr and link.raddr.port == port for link in child.net_connections("tcp"))
    ]
