"""A row of the database that no code of ours would write takes nothing from the other engines."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest
from sqlalchemy import text

from coserve.checkup.service import engines_in_use
from engine_adapter.client.base import EngineFacts
from engine_adapter.client.engine_address import why_unusable
from gateway.engines.registry import EngineRegistry
from gateway.settings import GatewaySettings
from store.session import Database
from tests.fakes.client import FakeEngine, FakeSettings
from tests.fakes.server import serving
from tests.fixtures.online import running_gateway

MODEL = "org/fake-model"
BAD = ["http://127.0.0.1:99999", "http://[::1", "", "http://a:secret@engine:1", "nonsense\n"]


async def write(database: Database, urls: list[str]) -> None:
    async with database.unit_of_work() as session:
        for url in urls:
            await session.execute(
                text(
                    "INSERT INTO engines (url, model, facts, created_at, added_at)"
                    " VALUES (:url, 'm', '[1]', now(), now())"
                ),
                {"url": url},
            )


@pytest.mark.parametrize("before", [True, False], ids=["before a start", "beside a gateway"])
async def test_a_gateway_serves_beside_bad_rows(
    database: Database, database_url: str, broker_url: str, tmp_path: Path, *, before: bool
) -> None:
    async with serving(FakeEngine(FakeSettings(model=MODEL))) as url:
        settings = GatewaySettings(
            database_url=database_url, broker_url=broker_url, engine_urls=url, home=tmp_path
        )
        if before:
            await write(database, BAD)
        async with running_gateway(database, settings, MODEL) as gateway:
            if not before:
                await write(database, BAD)
            async with asyncio.timeout(10), httpx.AsyncClient(base_url=gateway.url) as http:
                while (said := (await http.get("/statusz")).json())["status"] != "degraded":
                    await asyncio.sleep(0.05)
                assert said["unusable_engines"] == len(BAD)
                assert "secret" not in str(said)
                assert (await http.get("/readyz")).status_code == 200
                async with database.unit_of_work() as session:
                    await session.execute(text("DELETE FROM engines WHERE url <> :u"), {"u": url})
                # The registry is still followed.
                while "unusable_engines" in (await http.get("/statusz")).json():
                    await asyncio.sleep(0.05)
            assert [one.url for one in gateway.app.state.engines.members] == [url]


async def test_doctor_tells_of_each_bad_row(database: Database) -> None:
    await write(database, BAD)
    async with database.unit_of_work() as session:
        found = await engines_in_use(session, [])
    assert sorted(url for url in found if why_unusable(url)) == sorted(BAD)


@pytest.mark.parametrize("url", ["http://127.0.0.1:99999", "http://a:b@engine", "ftp://engine"])
def test_settings_refuse_what_is_no_address(url: str) -> None:
    for name in ("engine_urls", "chat_router_url"):
        with pytest.raises(ValueError, match="is expected"):
            GatewaySettings.model_validate({name: url})


async def test_facts_that_cannot_be_stored_hold_up_no_others(database: Database) -> None:
    registry = EngineRegistry(database, ["http://a:1", "http://b:1"])
    await registry.note("http://a:1", EngineFacts("not\x00text", 10))
    await registry.note("http://b:1", EngineFacts("m", 10))
    await registry.flush()
    assert {url: facts.model for url, facts in (await registry.remembered()).items()} == {
        "http://b:1": "m"
    }
