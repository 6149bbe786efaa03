"""The service behind PgBouncer in transaction mode: a transaction is all it may count on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from sqlalchemy import text

from batch.finish.finalize import finalize
from batch.states import BatchStatus
from engine_adapter.client.http import HttpEngineClient
from store.schema import WrongDatabase, check_room, check_schema
from store.session import Database
from tests.fakes.engine import FakeEngine
from tests.fakes.server import serving
from tests.fixtures.batches import Bench, add_batch, file_lines, line, read_batch

pytestmark = pytest.mark.pgbouncer

NUM_ROWS = 100


@pytest.fixture
async def pooled(pooled_url: str) -> AsyncIterator[Database]:
    """The service's handle with more connections than the pooler has to the server."""
    handle = Database(pooled_url, pool_size=10, prepares=False, limit_s=30.0)
    yield handle
    await handle.dispose()


async def test_a_batch_runs_to_its_end(pooled: Database) -> None:
    bench = Bench(pooled)
    batch_id = await add_batch(pooled, bench.file_store, [line(str(n)) for n in range(NUM_ROWS)])
    async with serving(FakeEngine()) as url:
        client = HttpEngineClient(url)
        ending = await bench.dispatch(client)
        await client.close()
    assert ending.num_written == NUM_ROWS
    assert await finalize(pooled, bench.file_store, batch_id) is BatchStatus.COMPLETED
    batch = await read_batch(pooled, batch_id)
    lines = await file_lines(bench.file_store, batch.output_file_id)
    assert {one["custom_id"] for one in lines} == {str(n) for n in range(NUM_ROWS)}


async def test_nothing_of_a_transaction_is_met_by_the_next(pooled: Database) -> None:
    """Many at once over two connections, of several kinds, the same statements again and again."""

    async def read_steadily(number: int) -> None:
        async with pooled.snapshot() as session:
            assert await session.scalar(text("SHOW transaction_isolation")) == "repeatable read"
            assert await session.scalar(text("SELECT CAST(:n AS int)"), {"n": number}) == number

    async def write(number: int) -> None:
        async with pooled.unit_of_work() as session:
            assert await session.scalar(text("SHOW transaction_isolation")) == "read committed"
            assert await session.scalar(text("SHOW transaction_read_only")) == "off"
            assert await session.scalar(text("SELECT CAST(:n AS int)"), {"n": number}) == number

    for _ in range(8):
        await asyncio.gather(*(kind(n) for n in range(10) for kind in (read_steadily, write)))


async def test_what_a_process_asks_at_its_start(pooled: Database) -> None:
    await check_schema(pooled)
    await check_room(pooled, 10)
    with pytest.raises(WrongDatabase, match="let this process have 100000 connections"):
        await check_room(pooled, 100_000)
