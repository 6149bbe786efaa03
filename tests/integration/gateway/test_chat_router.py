"""A router of somebody else's before the engines: chat goes through it, flex does not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from gateway.settings import GatewaySettings
from store.session import Database
from tests.fakes.client import FakeEngine, FakeSettings
from tests.fakes.server import serving
from tests.fixtures.online import Gateway, running_gateway

MODEL = "m"


class Router:
    """Forwards to engines in turn, as it comes."""

    def __init__(self, engines: list[str]) -> None:
        self.engines = engines
        self.num_asked = 0
        self.runner: web.AppRunner | None = None

    async def start(self) -> str:
        app = web.Application()
        app.router.add_post("/v1/{rest:.*}", self._forward)
        self.runner = web.AppRunner(app)
        await self.runner.setup()
        await web.TCPSite(self.runner, "127.0.0.1", 0).start()
        return f"http://127.0.0.1:{self.runner.addresses[0][1]}"

    async def stop(self) -> None:
        if self.runner is not None:
            runner, self.runner = self.runner, None
            await runner.cleanup()

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        url = self.engines[self.num_asked % len(self.engines)] + request.path
        self.num_asked += 1
        async with (
            aiohttp.ClientSession() as session,
            session.post(url, data=await request.read()) as answer,
        ):
            response = web.StreamResponse(
                status=answer.status, headers={"content-type": answer.content_type}
            )
            await response.prepare(request)
            async for piece in answer.content.iter_any():
                await response.write(piece)
        return response


@pytest.fixture
def engines() -> list[FakeEngine]:
    return [FakeEngine(FakeSettings(model=MODEL)) for _ in range(2)]


@pytest.fixture
async def router(engines: list[FakeEngine]) -> AsyncIterator[Router]:
    async with serving(engines[0]) as one, serving(engines[1]) as two:
        made = Router([one, two])
        yield made
        await made.stop()


@pytest.fixture
async def gateway(
    router: Router, database: Database, database_url: str, broker_url: str, tmp_path: Path
) -> AsyncIterator[Gateway]:
    settings = GatewaySettings(
        database_url=database_url,
        broker_url=broker_url,
        engine_urls=",".join(router.engines),
        chat_router_url=await router.start(),
        home=tmp_path,
    )
    async with running_gateway(database, settings, MODEL) as running:
        yield running


async def test_chat_goes_through_the_router_and_flex_does_not(
    gateway: Gateway, router: Router
) -> None:
    async with gateway.http() as http:
        for stream in (False, True):
            body = gateway.chat("hello", stream=stream)
            answer = await http.post("/v1/chat/completions", json=body)
            assert answer.status_code == 200
        assert router.num_asked == 2
        body = gateway.chat("hello", service_tier="flex")
        assert (await http.post("/v1/chat/completions", json=body)).status_code == 200
        assert router.num_asked == 2


async def test_a_caller_that_goes_away_is_aborted_wherever_its_request_is(
    gateway: Gateway, engines: list[FakeEngine]
) -> None:
    async with gateway.http() as http:
        for engine in engines:  # the router takes them in turn
            body = gateway.chat("fake:tokens=500 fake:token_ms=50", stream=True)
            async with http.stream("POST", "/v1/chat/completions", json=body) as reply:
                await anext(reply.aiter_bytes())
                assert len(engine.running) == 1
            async with asyncio.timeout(10):
                while engine.running:
                    await asyncio.sleep(0.02)


async def test_a_router_that_is_gone_is_gone_without(gateway: Gateway, router: Router) -> None:
    await router.stop()
    async with gateway.http() as http:
        for stream in (False, True):
            body = gateway.chat("hello", stream=stream)
            answer = await http.post("/v1/chat/completions", json=body)
            assert answer.status_code == 200
            assert b'"error"' not in answer.content
