"""A stolen key: revoked through one process, it ends in the other, open streams included."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from coserve.local.ports import free_port
from store.models import DEFAULT_PROJECT_ID
from store.repositories import key as keys
from store.session import Database
from tests.fakes.client import FakeEngine, FakeSettings
from tests.fakes.server import serving
from tests.fixtures.forked import ForkedProcess
from tests.integration.gateway.test_process import until_ready

LIMIT_S = 5.0
"""Promised in docs/tenants.md."""

ENDLESS = "fake:tokens=2000 fake:token_ms=100"


@dataclass(frozen=True)
class Two:
    """Two gateway processes over one database, before one engine."""

    urls: tuple[str, str]
    admin: str
    stolen: str
    stolen_id: str
    engine: FakeEngine

    def http(self, number: int, key: str) -> httpx.AsyncClient:
        headers = {"authorization": f"Bearer {key}"}
        return httpx.AsyncClient(base_url=self.urls[number], headers=headers, timeout=30)

    async def revoke(self) -> None:
        """Through the first process."""
        path = f"/v1/organization/projects/{DEFAULT_PROJECT_ID}/api_keys/{self.stolen_id}"
        async with self.http(0, self.admin) as http:
            reply = await http.delete(path)
        assert reply.status_code == 200, reply.text


@asynccontextmanager
async def gateway_process(environment: dict[str, str]) -> AsyncIterator[str]:
    port = free_port()
    process = ForkedProcess(
        (sys.executable, "-m", "gateway"),
        env=environment | {"COSERVE_PORT": str(port)},
        log=Path(environment["COSERVE_HOME"]) / f"gateway-{port}.log",
    )
    url = f"http://127.0.0.1:{port}"
    try:
        await until_ready(url)
        yield url
    finally:
        process.kill()
        await asyncio.to_thread(process.wait)


@pytest.fixture
async def two(
    database: Database, database_url: str, broker_url: str, tmp_path: Path
) -> AsyncIterator[Two]:
    async with database.unit_of_work() as session:
        _, admin = await keys.create(session, DEFAULT_PROJECT_ID, "ada", role="admin")
        key, stolen = await keys.create(session, DEFAULT_PROJECT_ID, "stolen")
    engine = FakeEngine(FakeSettings(model="m"))
    async with AsyncExitStack() as stack:
        engine_url = await stack.enter_async_context(serving(engine))
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("COSERVE_")}
        environment = inherited | {
            "DATABASE_URL": database_url,
            "BROKER_URL": broker_url,
            "ENGINE_URLS": engine_url,
            "COSERVE_HOME": str(tmp_path),
        }
        urls = [await stack.enter_async_context(gateway_process(environment)) for _ in range(2)]
        yield Two((urls[0], urls[1]), admin, stolen, key.id, engine)


def chat(prompt: str, **more: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": prompt}], **more}


async def test_a_revoked_key_is_refused_by_every_process(two: Two) -> None:
    async with two.http(0, two.stolen) as first, two.http(1, two.stolen) as second:
        for http in (first, second):
            assert (await http.get("/v1/files")).status_code == 200
        await two.revoke()
        async with asyncio.timeout(LIMIT_S):
            for http in (first, second):
                while (reply := await http.get("/v1/files")).status_code == 200:
                    await asyncio.sleep(0.05)
                assert reply.status_code == 401
                assert reply.json()["error"]["code"] == "invalid_api_key"


async def test_what_a_revoked_key_has_open_ends(two: Two) -> None:
    received: list[bytes] = []

    async def stream(http: httpx.AsyncClient) -> None:
        body = chat(ENDLESS, stream=True)
        async with http.stream("POST", "/v1/chat/completions", json=body) as reply:
            assert reply.status_code == 200
            received.extend([part async for part in reply.aiter_bytes()])

    async with two.http(1, two.stolen) as http:
        streaming = asyncio.ensure_future(stream(http))
        waiting = asyncio.ensure_future(http.post("/v1/chat/completions", json=chat(ENDLESS)))
        async with asyncio.timeout(10):
            while len(two.engine.running) < 2:
                await asyncio.sleep(0.01)
        await two.revoke()
        async with asyncio.timeout(LIMIT_S):
            await streaming
            whole = await waiting
            while two.engine.running:
                await asyncio.sleep(0.01)
    last = b"".join(received).rstrip().rsplit(b"\n\n", 1)[-1]
    assert b"[DONE]" not in b"".join(received)
    error = orjson.loads(last.removeprefix(b"data: "))["error"]
    assert (error["code"], error["type"]) == ("invalid_api_key", "invalid_request_error")
    assert whole.status_code == 401
    assert whole.json()["error"]["code"] == "invalid_api_key"


async def test_other_keys_notice_nothing(two: Two) -> None:
    body = chat("fake:tokens=20 fake:token_ms=100", stream=True)
    async with two.http(1, two.admin) as http, two.http(1, two.stolen) as thief:
        stolen = asyncio.ensure_future(thief.post("/v1/chat/completions", json=chat(ENDLESS)))
        async with http.stream("POST", "/v1/chat/completions", json=body) as reply:
            await two.revoke()
            received = b"".join([part async for part in reply.aiter_bytes()])
        assert received.endswith(b"data: [DONE]\n\n")
        assert (await stolen).status_code == 401
