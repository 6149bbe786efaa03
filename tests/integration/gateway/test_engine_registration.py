"""Engines that come and go by themselves: registered, beating, draining, gone."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from sqlalchemy import text

from batch.worker.sweep import sweep
from coserve.local.ports import free_port
from gateway.settings import GatewaySettings
from store.repositories import engine as engines
from store.session import Database
from tests.fakes.seams import MemoryQueue
from tests.fixtures.online import Gateway, running_gateway

ROOT = Path(__file__).parents[3]
MODEL, TOKEN = "fake-model", "engine-token"
LIMIT_S = 20.0


@pytest.fixture
async def gateway(
    database: Database, database_url: str, broker_url: str, tmp_path: Path
) -> AsyncIterator[Gateway]:
    async with serving_itself("http://127.0.0.1:1", free_port()) as process:
        settings = GatewaySettings(
            database_url=database_url,
            broker_url=broker_url,
            engine_urls="",
            home=tmp_path,
            engine_token=TOKEN,
        )
        async with database.unit_of_work() as session:
            await engines.arrive(session, process.url)
        async with running_gateway(database, settings, MODEL) as running:
            await until(running, {process.url})
            yield running


class Engine:
    """A fake engine behind its registration, as an image starts it."""

    def __init__(self, url: str, process: asyncio.subprocess.Process) -> None:
        self.url = url
        self.process = process

    async def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(LIMIT_S):
            return await self.process.wait()


@asynccontextmanager
async def serving_itself(gateway_url: str, port: int, token: str = TOKEN) -> AsyncIterator[Engine]:
    url = f"http://127.0.0.1:{port}"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "engine_adapter.registration", "--",
        sys.executable, "-m", "tests.fakes.server", "--port", str(port),
        "--model", MODEL,
        cwd=ROOT,
        stdout=asyncio.subprocess.DEVNULL,
        env=os.environ | {
            "COSERVE_REGISTER_URLS": f"http://127.0.0.1:9,{gateway_url}",
            "COSERVE_ENGINE_URL": url,
            "COSERVE_ENGINE_TOKEN": token,
        },
    )  # fmt: skip
    try:
        yield Engine(url, process)
    finally:
        if process.returncode is None:
            process.terminate()
        async with asyncio.timeout(LIMIT_S):
            await process.wait()


async def until(gateway: Gateway, wanted: set[str]) -> None:
    """Until these and no others take new requests."""
    async with asyncio.timeout(LIMIT_S):
        while {one.url for one in gateway.app.state.engines.members if one.open} != wanted:
            await asyncio.sleep(0.05)


async def test_an_engine_is_used_once_it_answers_and_left_before_it_ends(gateway: Gateway) -> None:
    (old,) = gateway.app.state.engines.members
    async with serving_itself(gateway.url, free_port()) as engine:
        await until(gateway, {old.url, engine.url})
        order = "fake:tokens=30 fake:token_ms=100"
        async with gateway.http() as http:
            # Open streams at both while one of them is told to end.
            streams = [
                asyncio.ensure_future(
                    http.post(
                        "/v1/chat/completions",
                        json=gateway.chat(f"{number} {order}", stream=True),
                    )
                )
                for number in range(16)
            ]
            (new,) = (one for one in gateway.app.state.engines.members if one.url == engine.url)
            async with asyncio.timeout(LIMIT_S):
                while not new.in_flight:
                    await asyncio.sleep(0.01)
            stopping = asyncio.ensure_future(engine.stop())
            await until(gateway, {old.url})
            assert new.in_flight, "what it had goes on"
            answers = await asyncio.gather(*streams)
            assert await stopping == 0
    assert all(one.content.endswith(b"data: [DONE]\n\n") for one in answers)
    assert not any(b'"error"' in one.content for one in answers)


async def test_an_engine_that_fell_silent_is_not_used_and_is_forgotten(
    gateway: Gateway, database: Database
) -> None:
    (old,) = gateway.app.state.engines.members
    async with serving_itself(gateway.url, free_port()) as engine:
        await until(gateway, {old.url, engine.url})
        await _age(database, old.url, engines.SILENT_S + 1)
        await until(gateway, {engine.url})
        await _age(database, old.url, engines.GONE_S + 1)
        await sweep(database, MemoryQueue(), ())
        async with database.unit_of_work() as session:
            found = {one.url: one for one in await engines.states(session)}
            assert not found[old.url].added
            assert found[engine.url].added
            await engines.beat(session, old.url)  # it was only cut off
        await until(gateway, {old.url, engine.url})


async def test_an_operators_drain_outlives_beats(gateway: Gateway, database: Database) -> None:
    (old,) = gateway.app.state.engines.members
    async with database.unit_of_work() as session:
        await engines.drain(session, old.url)
        await engines.beat(session, old.url)
    await until(gateway, set())
    async with database.unit_of_work() as session:
        await engines.arrive(session, old.url)
    await until(gateway, {old.url})


async def test_only_the_token_registers(gateway: Gateway) -> None:
    word = {"url": "http://127.0.0.1:7", "state": "arrived"}
    async with gateway.http() as http:
        refused = await http.post("/internal/engines", json=word)
        assert refused.status_code == 401
        http.headers["authorization"] = f"Bearer {TOKEN}"
        wrong = await http.post("/internal/engines", json=word | {"url": "ftp://x"})
        assert wrong.status_code == 400
        assert (await http.post("/internal/engines", json=word)).status_code == 200
        later = word | {"version": "of a later engine"}
        assert (await http.post("/internal/engines", json=later)).status_code == 200


async def _age(database: Database, url: str, by_s: float) -> None:
    async with database.unit_of_work() as session:
        await session.execute(
            text(
                "UPDATE engines SET beat_at = statement_timestamp() - make_interval(secs => :by_s)"
                " WHERE url = :url"
            ),
            {"url": url, "by_s": by_s},
        )
