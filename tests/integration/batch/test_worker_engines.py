"""The real worker processes and the registry of engines: nothing is restarted."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from typer.testing import CliRunner

from batch.files import make_file_store
from batch.settings import BatchSettings
from coserve.cli import app
from store.session import Database
from tests.fakes.engine import FakeSettings
from tests.fakes.server import serving
from tests.fixtures.batches import add_validating, line, until_status
from tests.fixtures.steered_engine import SteeredEngine
from tests.fixtures.workers import installation, workers

NUM_ROWS = 40


async def coserve(*arguments: str) -> None:
    """The command line, as an operator types it."""
    done = await asyncio.to_thread(CliRunner().invoke, app, ["engine", *arguments])
    assert done.exit_code == 0, done.output


async def test_batches_run_on_the_engines_that_are_registered(
    database: Database,
    database_url: str,
    broker_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, second = (SteeredEngine(FakeSettings(latency_s=0.02)) for _ in range(2))
    async with serving(first) as a, serving(second) as b:
        for name, value in {
            "DATABASE_URL": database_url,
            "BROKER_URL": broker_url,
            "ENGINE_URLS": "",  # the registry alone
            "COSERVE_HOME": str(tmp_path),
        }.items():
            monkeypatch.setenv(name, value)
        settings = BatchSettings()
        store = make_file_store(settings)
        lines = [line(f"r{n}", f"r{n}") for n in range(NUM_ROWS)]
        with workers(installation(settings), tmp_path / "log"):
            batch_id = await add_validating(database, store, lines)
            await coserve("add", a)
            await until_status(database, batch_id, "completed")
            assert first.asked == {f"r{n}": 1 for n in range(NUM_ROWS)}

            await coserve("add", b)
            await coserve("drain", a)
            batch_id = await add_validating(database, store, lines)
            await until_status(database, batch_id, "completed")
            assert first.asked.total() == NUM_ROWS, "a draining engine gets nothing"
            assert second.asked == {f"r{n}": 1 for n in range(NUM_ROWS)}
