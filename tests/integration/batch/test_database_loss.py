"""The database cuts every connection, again and again, while rows are in flight."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy import text

from engine_adapter.client.http import HttpEngineClient
from store.session import Database
from tests.fixtures.batches import (
    PATIENT,
    Bench,
    add_batch,
    line,
    read_batch,
    row_statuses,
    running,
    until,
)
from tests.fixtures.steered_engine import SteeredEngine

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
    engine: HttpEngineClient,
    fake_engine: SteeredEngine,
    database: Database,
    database_url: str,
) -> None:
    unasked = Database(database_url, ask_first=False)  # as the worker has it
    bench = Bench(unasked)
    slow = "fake:tokens=3 fake:token_ms=60"
    lines = [line(f"r{n}", slow) for n in range(NUM_ROWS)]
    fake_engine.held = True
    batch_id = await add_batch(database, bench.file_store, lines)
    watcher = Database(database_url)
    held = await bench.lease(engine.url, PATIENT)
    num_cut = 0
    async with running(bench.dispatcher(held, engine)) as task:
        await until(lambda: fake_engine.running)
        num_cut += await _cut_connections(watcher)
        fake_engine.held = False
        for _ in range(3):
            await asyncio.sleep(0.15)
            if not task.done():
                num_cut += await _cut_connections(watcher)
        ending = await task
    await watcher.dispose()
    await unasked.dispose()
    assert num_cut > 0
    assert not ending.lease_lost
    batch = await read_batch(database, batch_id)
    assert (batch.num_completed, batch.num_results) == (NUM_ROWS, NUM_ROWS)
    assert set((await row_statuses(database, batch_id)).values()) == {"succeeded"}
