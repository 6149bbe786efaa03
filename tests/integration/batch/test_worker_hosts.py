"""Two worker hosts share the engines, and one takes over what the other leaves behind."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path

import psutil
import pytest
from sqlalchemy import text

from batch.files import make_file_store
from batch.queue import STAGES, CeleryQueue
from batch.settings import BatchSettings
from batch.worker.app import make_app
from store.session import Database
from tests.fakes.engine import FakeSettings
from tests.fakes.server import serving
from tests.fixtures.batches import (
    PATIENCE_S,
    add_validating,
    file_lines,
    line,
    read_batch,
    until_status,
)
from tests.fixtures.steered_engine import SteeredEngine
from tests.fixtures.workers import Workers, installation, workers

NUM_ENGINES = 6
"""More than the processes with which the two hosts begin."""

NUM_ROWS = 120
pytestmark = [pytest.mark.timeout(300), pytest.mark.thorough]


async def until_all_are_served(database: Database) -> set[str]:
    """Until every engine has a dispatcher whose heart beats; the dispatchers' ids."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            async with database.unit_of_work() as session:
                found = await session.execute(
                    text(
                        "SELECT id FROM dispatchers"
                        " WHERE heartbeat_at > statement_timestamp() - interval '6 s'"
                    )
                )
                ids = set(found.scalars())
            if len(ids) == NUM_ENGINES:
                return ids
            await asyncio.sleep(0.05)


def served_by(host: Workers, urls: list[str]) -> Counter[str]:
    """How many processes of a host are connected to each engine."""
    ports = {int(url.rsplit(":", 1)[1]): url for url in urls}
    found: Counter[str] = Counter()
    for child in host.children("worker-dispatch"):
        connected = {link.raddr.port for link in child.net_connections("tcp") if link.raddr}
        found.update(ports[port] for port in connected & ports.keys())
    return found


def kill(host: Workers) -> None:
    """The host is gone, all at once and with everything below."""
    parts = [psutil.Process(process.pid) for process in host.processes.values()]
    for one in [child for part in parts for child in part.children(recursive=True)] + parts:
        one.kill()
    for process in host.processes.values():
        process.wait()


async def test_a_host_takes_over_the_engines_of_one_that_is_lost(
    database: Database,
    database_url: str,
    broker_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with AsyncExitStack() as stack:
        engines = [SteeredEngine(FakeSettings(max_running=8)) for _ in range(NUM_ENGINES)]
        urls = [await stack.enter_async_context(serving(engine)) for engine in engines]
        for engine in engines:
            engine.held = True
        for name, value in {
            "DATABASE_URL": database_url,
            "BROKER_URL": broker_url,
            "ENGINE_URLS": ",".join(urls),
            "COSERVE_HOME": str(tmp_path),
            "COSERVE_BATCH_MAX_IN_FLIGHT": "8",
        }.items():
            monkeypatch.setenv(name, value)
        settings = BatchSettings()
        store = make_file_store(settings)
        first = stack.enter_context(workers(installation(settings), tmp_path / "first"))
        second = stack.enter_context(workers(installation(settings), tmp_path / "second"))
        batch_id = await add_validating(database, store, [line(f"r{n}") for n in range(NUM_ROWS)])
        await CeleryQueue(make_app(settings)).wake(STAGES)

        before = await until_all_are_served(database)
        shared = served_by(first, urls), served_by(second, urls)
        assert set(shared[0]) | set(shared[1]) == set(urls)
        assert all(shared), f"each host has some: {shared}"

        kill(first)
        async with asyncio.timeout(PATIENCE_S):
            while set(served_by(second, urls)) != set(urls):
                await asyncio.sleep(0.1)
        assert await until_all_are_served(database) != before

        for engine in engines:
            engine.held = False
        await until_status(database, batch_id, "completed")
        batch = await read_batch(database, batch_id)
        assert (batch.num_completed, batch.num_failed, batch.num_results) == (NUM_ROWS, 0, NUM_ROWS)
        done = Counter(one["custom_id"] for one in await file_lines(store, batch.output_file_id))
        assert done == {f"r{n}": 1 for n in range(NUM_ROWS)}
