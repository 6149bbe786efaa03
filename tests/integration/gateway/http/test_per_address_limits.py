"""Behind a proxy: whose word is taken, who is limited, and what the audit log says."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from sqlalchemy import text

from gateway.http.app import create_app
from gateway.http.server import GatewayServer
from gateway.settings import GatewaySettings
from store.models import DEFAULT_PROJECT_ID
from store.repositories import key as keys
from store.session import Database
from tests.fixtures.dashboard import log_in
from tests.fixtures.listening import listening

PER_MINUTE = 5


@asynccontextmanager
async def gateway(
    folder: Path,
    database_url: str,
    broker_url: str,
    trusted: str,
    engine_url: str = "http://127.0.0.1:1",
) -> AsyncIterator[str]:
    """The server as it is put behind a port; its address."""
    settings = GatewaySettings.model_validate(
        {
            "DATABASE_URL": database_url,
            "BROKER_URL": broker_url,
            "ENGINE_URLS": engine_url,
            "home": folder,
            "port": 0,
            "trusted_proxies": trusted,
            "unknown_keys_per_minute": PER_MINUTE,
            "secret": "of the tests",
        }
    )
    async with listening(GatewayServer(create_app(settings), settings)) as url:
        yield url


@pytest.fixture
async def key(database: Database) -> str:
    async with database.unit_of_work() as session:
        return (await keys.create(session, DEFAULT_PROJECT_ID, "k", role="admin"))[1]


@pytest.fixture
async def proxied(
    tmp_path: Path, database: Database, database_url: str, broker_url: str
) -> AsyncIterator[str]:
    async with gateway(tmp_path, database_url, broker_url, "127.0.0.0/8") as url:
        yield url


def caller(url: str, address: str, key: str = "sk-coserve-unknown") -> httpx.AsyncClient:
    """Someone at an address, as a proxy puts it."""
    headers = {"x-forwarded-for": address, "authorization": f"Bearer {key}"}
    return httpx.AsyncClient(base_url=url, headers=headers, timeout=30)


async def test_strangers_are_limited_and_others_at_their_address_are_not(
    proxied: str, key: str
) -> None:
    async with (
        caller(proxied, "192.0.2.1", key) as known,
        caller(proxied, "192.0.2.1") as stranger,
        caller(proxied, "192.0.2.9") as elsewhere,
    ):
        assert (await known.get("/v1/files")).status_code == 200
        statuses = [(await stranger.get("/v1/files")).status_code for _ in range(PER_MINUTE)]
        assert statuses == [401] * PER_MINUTE
        limited = await stranger.post("/v1/chat/completions", json={})
        assert limited.status_code == 429
        assert limited.json()["error"]["code"] == "rate_limit_exceeded"
        assert int(limited.headers["retry-after"]) >= 1
        without = await stranger.get("/v1/files", headers={"authorization": ""})
        assert without.status_code == 429
        assert (await known.get("/v1/files")).status_code == 200
        assert (await elsewhere.get("/v1/files")).status_code == 401


async def test_a_good_key_does_not_count(proxied: str, database: Database) -> None:
    for number in range(2 * PER_MINUTE):
        async with database.unit_of_work() as session:
            _, new_key = await keys.create(session, DEFAULT_PROJECT_ID, f"k{number}")
        async with caller(proxied, "192.0.2.1", new_key) as known:
            assert (await known.get("/v1/files")).status_code == 200


async def test_the_login_sees_the_client_and_its_cookie_is_secure(
    proxied: str, key: str, database: Database
) -> None:
    headers = {"x-forwarded-for": "192.0.2.7", "x-forwarded-proto": "https"}
    async with httpx.AsyncClient(base_url=proxied, headers=headers, timeout=30) as client:
        page = await client.get("/admin/login")
        assert "secure" in page.headers["set-cookie"].lower()
        # A browser would send it back over https alone; this client speaks to us behind the proxy.
        client.cookies = httpx.Cookies({c.name: c.value or "" for c in client.cookies.jar})
        assert (await log_in(client, key)).status_code == 303
    async with database.unit_of_work() as session:
        found = await session.execute(text("SELECT address FROM audit_log ORDER BY seq"))
        assert found.scalars().all() == ["192.0.2.7"]


async def test_who_is_no_trusted_proxy_speaks_for_nobody(
    tmp_path: Path, database: Database, database_url: str, broker_url: str, key: str
) -> None:
    async with gateway(tmp_path, database_url, broker_url, "10.0.0.0/8") as url:
        for number in range(PER_MINUTE):
            async with caller(url, f"192.0.2.{number}") as stranger:
                assert (await stranger.get("/v1/files")).status_code == 401
        async with caller(url, "192.0.2.200") as stranger:
            assert (await stranger.get("/v1/files")).status_code == 429
        async with caller(url, "192.0.2.7") as client:
            cookie = await client.get("/admin/login", headers={"x-forwarded-proto": "https"})
            assert "secure" not in cookie.headers["set-cookie"].lower()
            assert (await log_in(client, key)).status_code == 303
    async with database.unit_of_work() as session:
        found = await session.execute(text("SELECT address FROM audit_log ORDER BY seq"))
        assert found.scalars().all() == ["127.0.0.1"]


@pytest.mark.parametrize("named", ["127.0.0.1", "127.9.9.9", "192.0.2.8, 127.0.0.1", None])
async def test_who_is_on_this_host_is_counted_behind_a_proxy_and_before_it(
    proxied: str, key: str, named: str | None
) -> None:
    headers = {"authorization": "Bearer sk-coserve-unknown"}
    if named is not None:
        headers["x-forwarded-for"] = named
    async with (
        caller(proxied, "192.0.2.77", key) as known,
        httpx.AsyncClient(base_url=proxied, headers=headers, timeout=30) as stranger,
    ):
        assert (await known.get("/v1/files")).status_code == 200
        statuses = [(await stranger.get("/v1/files")).status_code for _ in range(PER_MINUTE + 1)]
        assert statuses == [401] * PER_MINUTE + [429]
        assert (await known.get("/v1/files")).status_code == 200
