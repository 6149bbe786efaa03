"""The logs of the real worker processes: objects of one schema, and nothing of a row."""

from __future__ import annotations

import asyncio
from pathlib import Path

import orjson
import pytest

from batch.files import make_file_store
from batch.queue import STAGES, CeleryQueue
from batch.settings import BatchSettings
from batch.worker.app import make_app
from store.session import Database
from tests.fakes.engine import FakeSettings
from tests.fakes.server import serving
from tests.fixtures.batches import PATIENCE_S, add_validating, line, until_status
from tests.fixtures.steered_engine import SteeredEngine
from tests.fixtures.workers import installation, workers

CANARY = "zq9-the-prompt-nobody-else-may-see"


async def test_lines_are_objects_and_hold_nothing_of_a_row(
    database: Database,
    database_url: str,
    broker_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in {
        "DATABASE_URL": database_url,
        "BROKER_URL": broker_url,
        "COSERVE_HOME": str(tmp_path),
        "COSERVE_LOG_FORMAT": "json",
        "COSERVE_BATCH_MAX_ATTEMPTS": "1",
    }.items():
        monkeypatch.setenv(name, value)
    log = tmp_path / "log"
    async with serving(SteeredEngine(FakeSettings(max_running=16))) as url:
        monkeypatch.setenv("ENGINE_URLS", url)
        settings = BatchSettings()
        prompts = ("", "fake:status=500 ", "fake:status=400 ", "fake:fail_after=1 ")
        lines = [line(f"r{n}", f"{one}{CANARY}") for n, one in enumerate(prompts)]
        store = make_file_store(settings)
        batch_id = await add_validating(database, store, lines)
        refused = await add_validating(database, store, [b"{" + CANARY.encode()])
        queue = CeleryQueue(make_app(settings))
        await queue.wake(STAGES)
        await queue.wake(STAGES)
        with workers(installation(settings), log) as started:
            await until_status(database, batch_id, "completed")
            await until_status(database, refused, "failed")
            await asyncio.to_thread(started.stop, PATIENCE_S)
    # Celery prints the word of its end by itself.
    written = [one for one in log.read_bytes().splitlines() if one and b"shutdown (Main" not in one]
    found = [orjson.loads(each) for each in written]
    assert all({"at", "level", "part", "logger", "message"} <= set(one) for one in found)
    assert {one["part"] for one in found} >= {"worker-dispatch", "worker-stages"}
    assert CANARY not in log.read_text()
