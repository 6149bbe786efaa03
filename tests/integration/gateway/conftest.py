"""The real gateway on a real port before a fake engine on another one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from fastapi import FastAPI
from openai import AsyncOpenAI

from engine_adapter.client.fake import FakeEngine, FakeSettings
from engine_adapter.client.fake_server import serving
from gateway.app import create_app
from gateway.settings import GatewaySettings
from store.models import DEFAULT_PROJECT_ID
from store.repositories import key as keys
from store.session import Database

MODEL = "org/fake-model"


class Server(uvicorn.Server):
    """Leaves the test run's signal handlers alone."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@dataclass(frozen=True)
class Online:
    """A running gateway, its engine, and a key."""

    url: str
    key: str
    key_id: str
    engine: FakeEngine
    server: Server
    app: FastAPI

    def client(self, **more: Any) -> AsyncOpenAI:
        options = {"api_key": self.key, "max_retries": 0, **more}
        return AsyncOpenAI(base_url=f"{self.url}/v1", **options)

    def http(self, **more: Any) -> httpx.AsyncClient:
        headers = {"authorization": f"Bearer {self.key}"}
        return httpx.AsyncClient(base_url=self.url, headers=headers, timeout=30, **more)

    def chat(self, prompt: str, **more: Any) -> dict[str, Any]:
        return {"model": MODEL, "messages": [{"role": "user", "content": prompt}], **more}

    async def until_engine_is_free(self, limit_s: float = 2.0) -> None:
        async with asyncio.timeout(limit_s):
            while self.engine.waiting or self.engine.running:
                await asyncio.sleep(0.005)

    async def until_engine_is_busy(self, num: int = 1) -> None:
        async with asyncio.timeout(5):
            while len(self.engine.running) < num:
                await asyncio.sleep(0.005)


@pytest.fixture
def online_settings() -> dict[str, Any]:
    """Settings that a test module wants otherwise."""
    return {}


@pytest.fixture
async def online(
    database: Database,
    database_url: str,
    broker_url: str,
    tmp_path: Path,
    online_settings: dict[str, Any],
) -> AsyncIterator[Online]:
    async with database.unit_of_work() as session:
        key, plaintext = await keys.create(session, DEFAULT_PROJECT_ID, "test")
    engine = FakeEngine(FakeSettings(model=MODEL))
    async with serving(engine) as engine_url:
        settings = GatewaySettings(
            database_url=database_url,
            broker_url=broker_url,
            engine_urls=engine_url,
            home=tmp_path,
            **online_settings,
        )
        app = create_app(settings)
        server = Server(
            uvicorn.Config(app, host="127.0.0.1", port=0, http="httptools", log_config=None)
        )
        running = asyncio.ensure_future(server.serve())
        while not (server.started and app.state.engines.models()):
            assert not running.done(), "the gateway did not start"
            await asyncio.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield Online(f"http://127.0.0.1:{port}", plaintext, key.id, engine, server, app)
        server.should_exit = True
        await running
