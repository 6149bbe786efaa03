"""The database cuts every connection, again and again, while rows are in flight."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy import text

from batch.lease import LeaseTimes
from engine_adapter.client.fake_engine import FakeEngine
from engine_adapter.client.http import HttpEngineClient
from store.session import Database
from tests.fixtures.batches import Bench, add_batch, line, read_batch, row_statuses, running, until

NUM_ROWS = 300


async def _cut_connections(watcher: Database) -> int:
    async with watcher.unit_of_work() as session:
        killed = await session.execute(
            text(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        )
        return len(killed.all())


@pytest.mark.contract("R-33")
async def test_every_row_is_answered_once_all_the_same(
    bench: Bench,
    engine: HttpEngineClient,
    fake_engine: FakeEngine,
    database: Database,
    database_url: str,
) -> None:
    slow = "fake:tokens=3 fake:token_ms=60"
    lines = [line(f"r{n}", slow) for n in range(NUM_ROWS)]
    batch_id = await add_batch(database, bench.file_store, lines)
    watcher = Database(database_url)
    held = await bench.lease(engine.url, LeaseTimes(heartbeat_s=0.1, stale_s=5.0))
    num_cut = 0
    async with running(bench.dispatcher(held, engine)) as task:
        await until(lambda: fake_engine.running)
        for _ in range(4):
            await asyncio.sleep(0.15)
            if not task.done():
                num_cut += await _cut_connections(watcher)
        ending = await task
    await watcher.dispose()
    assert num_cut > 0
    assert not ending.lease_lost
    batch = await read_batch(database, batch_id)
    assert (batch.num_completed, batch.num_results) == (NUM_ROWS, NUM_ROWS)
    assert set((await row_statuses(database, batch_id)).values()) == {"succeeded"}
