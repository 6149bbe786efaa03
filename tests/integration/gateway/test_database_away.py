"""Postgres goes away while people chat: with a key that is known, nothing happens to them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio
from openai import APIStatusError, AuthenticationError

from gateway.auth import keys as ring
from gateway.auth.keys import KeyRing
from gateway.settings import GatewaySettings
from store.models import DEFAULT_PROJECT_ID
from store.repositories import key as keys
from store.repositories import usage as usages
from store.session import Database
from tests.fakes.client import FakeEngine, FakeSettings
from tests.fakes.server import serving
from tests.fixtures.batches import PATIENCE_S
from tests.fixtures.commit_proxy import CommitProxy, commit_proxy
from tests.fixtures.online import Gateway, running_gateway
from tests.integration.gateway.conftest import MODEL
from tests.integration.gateway.test_keys import Seconds


@dataclass(frozen=True)
class Cut:
    """A gateway whose way to its database can be cut."""

    gateway: Gateway
    proxy: CommitProxy
    engine: FakeEngine

    async def chat(self, key: str) -> None:
        async with self.gateway.client(api_key=key) as client:
            await client.chat.completions.create(**self.gateway.chat("a b fake:tokens=3"))

    async def until_refused(self, key: str) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    await self.chat(key)
                except AuthenticationError:
                    return
                await asyncio.sleep(0.1)


@pytest_asyncio.fixture
async def cut(
    database: Database, database_url: str, broker_url: str, tmp_path: Path
) -> AsyncIterator[Cut]:
    engine = FakeEngine(FakeSettings(model=MODEL))
    async with commit_proxy(database_url) as proxy, serving(engine) as engine_url:
        proxy.share = 0
        settings = GatewaySettings(
            database_url=proxy.url, broker_url=broker_url, engine_urls=engine_url, home=tmp_path
        )
        async with running_gateway(database, settings, MODEL) as gateway:
            yield Cut(gateway, proxy, engine)
            proxy.open = True
            proxy.flowing.set()


@pytest.mark.parametrize("how", ["refused", "hung"])
async def test_chat_goes_on_and_what_it_used_is_written_later(
    cut: Cut, database: Database, how: str
) -> None:
    async with database.unit_of_work() as session:
        revoked, revoked_key = await keys.create(session, DEFAULT_PROJECT_ID, "revoked")
    key = cut.gateway.key
    await cut.chat(key)
    await cut.chat(revoked_key)
    async with database.unit_of_work() as session:
        await keys.revoke(session, revoked.id)
    await cut.until_refused(revoked_key)
    if how == "hung":
        cut.proxy.flowing.clear()
    else:
        cut.proxy.shut()
    loop = asyncio.get_running_loop()
    away_until_s, num_answered = loop.time() + ring.KEPT_S + 2, 0
    while loop.time() < away_until_s:
        await cut.chat(key)
        num_answered += 1
        await asyncio.sleep(0.05)
    assert num_answered > 3
    if how == "refused":
        with pytest.raises(APIStatusError) as unknown:
            await cut.chat("sk-coserve-nobody-knows-this-one")
        assert unknown.value.status_code == 503
        with pytest.raises(AuthenticationError):
            await cut.chat(revoked_key)
    cut.proxy.open = True
    cut.proxy.flowing.set()
    await _written(database, cut.engine.served["online"].completion_tokens)


async def _written(database: Database, completion_tokens: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            async with database.unit_of_work() as session:
                rows = await usages.list_for(session, DEFAULT_PROJECT_ID)
            num = sum(row.completion_tokens for row in rows)
            assert num <= completion_tokens
            if num == completion_tokens:
                return
            await asyncio.sleep(0.1)


async def test_for_a_stated_time_only_and_not_beyond_its_own_end(
    database: Database, database_url: str
) -> None:
    clock = Seconds()
    async with database.unit_of_work() as session:
        _, lasting = await keys.create(session, DEFAULT_PROJECT_ID, "lasting")
        _, ending = await keys.create(session, DEFAULT_PROJECT_ID, "ending", expires_in_s=60)
    async with commit_proxy(database_url) as proxy:
        proxy.share = 0
        away = Database(proxy.url)
        keyring = KeyRing(away, now_s=clock, stale_s=100)
        for key in (lasting, ending):
            await keyring.principal({"authorization": f"Bearer {key}"})
        proxy.shut()
        clock.now_s = 50
        for key in (lasting, ending):
            await keyring.principal({"authorization": f"Bearer {key}"})
        clock.now_s = 70
        await keyring.principal({"authorization": f"Bearer {lasting}"})
        with pytest.raises(Exception, match="connection"):
            await keyring.principal({"authorization": f"Bearer {ending}"})
        clock.now_s = 101
        with pytest.raises(Exception, match="connection"):
            await keyring.principal({"authorization": f"Bearer {lasting}"})
        proxy.open = True
        await keyring.principal({"authorization": f"Bearer {lasting}"})
        await keyring.close()
        await away.dispose()
