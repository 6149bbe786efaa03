"""Rows at an engine of level 0 give way to chat, as gateways tell of it in the database."""

from __future__ import annotations

import asyncio

import pytest

from engine_adapter.client.engine_facts import OURS, VLLM
from engine_adapter.client.http import HttpEngineClient
from store.repositories import chat_report
from store.repositories.chat_report import ChatNow
from store.session import Database
from tests.fakes.engine import FakeEngine, FakeSettings
from tests.fakes.server import serving
from tests.fixtures.batches import Bench, add_batch, line, read_batch


async def told(database: Database, url: str, num_open: int, pressure: float) -> None:
    async with database.unit_of_work() as session:
        await chat_report.write(session, "gw_1", {url: ChatNow(num_open, pressure)})


async def test_reports_of_gateways_are_one(database: Database) -> None:
    async with database.unit_of_work() as session:
        await chat_report.write(session, "gw_1", {"http://a": ChatNow(2, 0.5)})
        await chat_report.write(session, "gw_2", {"http://a": ChatNow(1, 1.5)})
        await chat_report.write(session, "gw_1", {"http://a": ChatNow(3, 0.25)})
        assert await chat_report.read(session, "http://a") == ChatNow(4, 1.5)
        assert await chat_report.read(session, "http://b") == ChatNow()


@pytest.mark.parametrize("server", [VLLM, OURS])
async def test_late_chat_has_the_engine_alone_and_the_batch_ends_all_the_same(
    server: str, bench: Bench, database: Database
) -> None:
    engine = FakeEngine(FakeSettings(server=server, plugin=server == OURS, token_s=0.2))
    engine.report = {"coserving_level": 0} if server == OURS else {}
    async with serving(engine) as url:
        client = HttpEngineClient(url)
        lines = [line(f"r{n}", prompt="fake:tokens=8") for n in range(12)]
        batch_id = await add_batch(database, bench.file_store, lines)
        running = asyncio.ensure_future(bench.dispatch(client))
        try:
            async with asyncio.timeout(20):
                while not engine.running:
                    await asyncio.sleep(0.02)
                while engine.running:
                    await told(database, url, 1, 2.0)
                    await asyncio.sleep(0.1)
            for _ in range(10):
                await told(database, url, 1, 2.0)
                await asyncio.sleep(0.1)
                assert not engine.running
            async with asyncio.timeout(60):
                ending = await running
        finally:
            running.cancel()
            await client.close()
    assert ending.num_written == 12
    batch = await read_batch(database, batch_id)
    assert batch.num_failed == 0


async def test_a_batch_ends_though_the_engine_is_killed_and_started_again(
    bench: Bench, database: Database
) -> None:
    settings = FakeSettings(server=VLLM, plugin=False, token_s=0.05)
    lines = [line(f"r{n}", prompt="fake:tokens=8") for n in range(30)]
    batch_id = await add_batch(database, bench.file_store, lines)
    first = FakeEngine(settings)
    async with serving(first) as url:
        client = HttpEngineClient(url)
        running = asyncio.ensure_future(bench.dispatch(client))
        async with asyncio.timeout(20):
            while len(first.running) < 2:
                await asyncio.sleep(0.02)
    try:
        async with serving(FakeEngine(settings), port=int(url.rpartition(":")[2])) as again:
            assert again == url
            async with asyncio.timeout(60):
                ending = await running
    finally:
        running.cancel()
        await client.close()
    batch = await read_batch(database, batch_id)
    assert (batch.num_completed, batch.num_failed) == (30, 0)
    assert not ending.more_work
