"""The sweep has a process of its own: it repairs while every stage is stuck."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from sqlalchemy import text

from batch.files import make_file_store
from batch.run import lease
from batch.settings import BatchSettings
from batch.worker.commands import NUM_STAGE_PROCESSES
from service.clock import SystemClock
from store.repositories import row as rows
from store.session import Database
from tests.fakes.engine import FakeEngine
from tests.fakes.server import serving
from tests.fixtures.batches import add_batch, line, until, until_completed
from tests.fixtures.workers import installation, workers

NUM_ROWS = 20
GONE = "http://127.0.0.1:1"


async def test_rows_of_a_dead_dispatcher_come_back_while_every_stage_is_stuck(
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
        with workers(installation(settings), tmp_path / "log") as started:
            await until(lambda: len(started.children("worker-stages")) == NUM_STAGE_PROCESSES)
            for child in started.children("worker-stages"):
                child.send_signal(signal.SIGSTOP)
            held = await lease.acquire(GONE, database, SystemClock())
            assert held is not None
            lines = [line(f"r{n}") for n in range(NUM_ROWS)]
            batch_id = await add_batch(database, make_file_store(settings), lines)
            async with database.unit_of_work() as session:
                await rows.claim(session, held.id, {batch_id: NUM_ROWS})
                await session.execute(
                    text(
                        "UPDATE dispatchers SET heartbeat_at = now() - interval '1 hour'"
                        " WHERE id = :id"
                    ),
                    {"id": held.id},
                )
            await until_completed(database, batch_id, NUM_ROWS)
