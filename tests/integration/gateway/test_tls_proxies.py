"""Behind Caddy and nginx, each with the file of ours: streams, uploads, whose address is seen."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import httpx
import pytest
from sqlalchemy import text

from store.models import DEFAULT_PROJECT_ID
from store.repositories import key as keys
from store.session import Database
from tests.fakes.engine import FakeEngine
from tests.fakes.server import serving
from tests.fixtures.dashboard import log_in
from tests.fixtures.tls_proxies import PROXIES, tls_proxy
from tests.integration.gateway.http.test_per_address_limits import gateway

pytestmark = pytest.mark.proxies

CLIENT = "127.0.0.2"
"""Where the client calls from; the proxy calls the gateway from 127.0.0.1, which alone is trusted.
"""
LIMIT_S = 60.0
"""Of what must not be held back: no wait of a good run."""


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


@pytest.fixture(params=PROXIES)
async def proxied(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    engine: FakeEngine,
    database: Database,
    database_url: str,
    broker_url: str,
) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the proxy, with a key."""
    async with database.unit_of_work() as session:
        _, key = await keys.create(session, DEFAULT_PROJECT_ID, "k", role="admin")
    async with AsyncExitStack() as stack:
        engine_url = await stack.enter_async_context(serving(engine))
        home = tmp_path / "home"
        home.mkdir()
        behind = await stack.enter_async_context(
            gateway(home, database_url, broker_url, "127.0.0.1/32", engine_url)
        )
        folder = tmp_path / "proxy"
        folder.mkdir()
        url, trust = stack.enter_context(tls_proxy(request.param, folder, behind))
        client = await stack.enter_async_context(
            httpx.AsyncClient(
                base_url=url,
                headers={"authorization": f"Bearer {key}"},
                timeout=LIMIT_S,
                transport=httpx.AsyncHTTPTransport(verify=trust, local_address=CLIENT),
            )
        )
        await _answers(client)
        yield client


async def _answers(client: httpx.AsyncClient) -> None:
    async with asyncio.timeout(LIMIT_S):
        while True:
            try:
                if (await client.get("/readyz")).status_code == 200:
                    return
            except httpx.TransportError:  # it does not listen yet
                pass
            await asyncio.sleep(0.05)


async def test_tokens_come_as_they_are_made_and_nobody_waits_for_who_has_left(
    proxied: httpx.AsyncClient, engine: FakeEngine
) -> None:
    body = {
        "model": "fake-model",
        "stream": True,
        # The second token is an hour behind the first: whoever collects them shows nothing.
        "messages": [{"role": "user", "content": "fake:tokens=2 fake:token_ms=3600000"}],
    }
    headers = {"content-type": "application/json"}
    async with (
        asyncio.timeout(LIMIT_S),
        proxied.stream("POST", "/v1/chat/completions", json=body, headers=headers) as reply,
    ):
        assert reply.status_code == 200
        assert "data: " in await anext(reply.aiter_text())
        assert len(engine.running) == 1
    async with asyncio.timeout(LIMIT_S):
        while engine.running:
            await asyncio.sleep(0.05)


async def test_a_large_upload_arrives_whole(proxied: httpx.AsyncClient) -> None:
    data = b"x" * (20 * 1024 * 1024)
    made = await proxied.post(
        "/v1/files", data={"purpose": "batch"}, files={"file": ("large.jsonl", data)}
    )
    assert made.status_code == 200, made.text
    assert made.json()["bytes"] == len(data)
    back = await proxied.get(f"/v1/files/{made.json()['id']}/content")
    assert back.content == data


async def test_the_clients_own_address_is_seen(
    proxied: httpx.AsyncClient, database: Database
) -> None:
    async with database.unit_of_work() as session:
        _, key = await keys.create(session, DEFAULT_PROJECT_ID, "admin", role="admin")
    proxied.headers["x-forwarded-for"] = "192.0.2.66"
    page = await proxied.get("/admin/login")
    assert "secure" in page.headers["set-cookie"].lower(), "the gateway knows of the TLS"
    assert (await log_in(proxied, key)).status_code == 303
    async with database.unit_of_work() as session:
        found = await session.execute(text("SELECT address FROM audit_log ORDER BY seq"))
        assert found.scalars().all() == [CLIENT], "not what it says itself, and not the proxy's"
