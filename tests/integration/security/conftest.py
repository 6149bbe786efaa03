"""The gateway's app called in this process, and as a process of its own; real Postgres and Valkey.

Both stand before a fake engine. What their tests send carries marks; whatever is answered with an
error, or logged, is searched for them.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from fastapi import FastAPI

from coserve.local.ports import free_port
from gateway.http.app import create_app
from gateway.settings import GatewaySettings
from store.models import DEFAULT_PROJECT_ID
from store.repositories import key as keys
from store.session import Database
from tests.fakes.client import FakeEngine, FakeSettings
from tests.fakes.server import serving
from tests.fixtures.forked import ForkedProcess
from tests.integration.gateway.test_process import until_ready

MODEL = "org/fake-model"
CANARY = "zq9-the-prompt-nobody-else-may-see"
ROOT = Path(__file__).parents[3]

# What only a stack, a query or a machine can have said.
TRACES = (
    b"Traceback", b'File "', b"site-packages", b"SELECT ", b"INSERT ", b"psycopg", b"sqlalchemy",
    b"asyncpg", b"/usr/", b"/home/", b"/tmp/", b"127.0.0.1", b"localhost",
)  # fmt: skip


def leaks(body: bytes, *secrets: str) -> list[bytes]:
    """What an error's body should not hold, and does."""
    marks = (CANARY.encode(), str(ROOT).encode(), *(secret.encode() for secret in secrets))
    return [mark for mark in (*marks, *TRACES) if mark in body]


def check_error(status: int, body: bytes, *secrets: str) -> None:
    """An error is no server error, has the one envelope and tells nothing."""
    assert status < 500, body
    assert not leaks(body, *secrets), body
    error = orjson.loads(body)["error"]
    assert list(error) == ["message", "type", "param", "code"], body
    assert error["code"] is None or isinstance(error["code"], str)


@dataclass(frozen=True)
class Inside:
    """The app without a port."""

    app: FastAPI
    http: httpx.AsyncClient
    key: str
    engine: FakeEngine


@pytest.fixture
async def inside(
    database: Database, database_url: str, broker_url: str, tmp_path: Path
) -> AsyncIterator[Inside]:
    async with database.unit_of_work() as session:
        _, key = await keys.create(session, DEFAULT_PROJECT_ID, "fuzz")
    engine = FakeEngine(FakeSettings(model=MODEL))
    async with serving(engine) as engine_url:
        app = create_app(
            GatewaySettings(
                database_url=database_url,
                broker_url=broker_url,
                engine_urls=engine_url,
                home=tmp_path,
                log_level="warning",
            )
        )
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(
                transport=transport,
                base_url="http://gateway.test",
                headers={"authorization": f"Bearer {key}"},
            ) as http,
        ):
            async with asyncio.timeout(10):
                while not app.state.engines.models():
                    await asyncio.sleep(0.01)
            yield Inside(app, http, key, engine)


@dataclass(frozen=True)
class Outside:
    """A gateway process: where it answers, a key, its id, its log, and the engine behind it."""

    port: int
    key: str
    process: ForkedProcess
    log: Path
    engine: FakeEngine

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def http(self) -> httpx.AsyncClient:
        headers = {"authorization": f"Bearer {self.key}"}
        return httpx.AsyncClient(base_url=self.url, headers=headers, timeout=30)

    def rss_mib(self) -> float:
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
        raise AssertionError("no VmRSS")


@pytest.fixture
def outside_settings() -> dict[str, str]:
    """The process' environment where a module wants it otherwise."""
    return {}


@pytest.fixture
async def outside(
    database: Database,
    database_url: str,
    broker_url: str,
    tmp_path: Path,
    outside_settings: dict[str, str],
) -> AsyncIterator[Outside]:
    async with database.unit_of_work() as session:
        _, key = await keys.create(session, DEFAULT_PROJECT_ID, "outside")
    engine, port, log = (
        FakeEngine(FakeSettings(model=MODEL, context_tokens=8192)),
        free_port(),
        tmp_path / "log",
    )
    async with serving(engine) as engine_url:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("COSERVE_")} | {
            "DATABASE_URL": database_url,
            "BROKER_URL": broker_url,
            "ENGINE_URLS": engine_url,
            "COSERVE_HOME": str(tmp_path),
            "COSERVE_PORT": str(port),
            **outside_settings,
        }
        process = ForkedProcess((sys.executable, "-m", "gateway"), env=environment, log=log)
        try:
            gateway = Outside(port, key, process, log, engine)
            await until_ready(gateway.url)
            yield gateway
        finally:
            process.terminate()
            await asyncio.to_thread(process.wait)


def chat(prompt: str = CANARY, **more: Any) -> dict[str, Any]:
    return {"model": MODEL, "messages": [{"role": "user", "content": prompt}], **more}
