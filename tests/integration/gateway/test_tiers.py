"""A key, a project or an alias decides how its requests are served; clients change nothing."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import text

from store.session import Database
from tests.integration.gateway.conftest import MODEL, Online


async def served_tiers(online: Online, **more: Any) -> list[str | None]:
    """The tier that chat and responses name."""
    asked = {"model": MODEL, **more}
    async with online.http() as http:
        messages = [{"role": "user", "content": "hi"}]
        chat = await http.post("/v1/chat/completions", json={**asked, "messages": messages})
        response = await http.post("/v1/responses", json={**asked, "input": "hi"})
    assert (chat.status_code, response.status_code) == (200, 200), (chat.text, response.text)
    return [chat.json().get("service_tier"), response.json()["service_tier"]]


async def set_of(database: Database, table: str, column: str, value: object) -> None:
    async with database.unit_of_work() as session:
        await session.execute(text(f"UPDATE {table} SET {column} = :value"), {"value": value})


SITUATIONS = [
    ({}, None, [None, "default"]),
    ({"api_keys.service_tier": "flex"}, None, ["flex", "flex"]),
    ({"projects.service_tier": "flex"}, None, ["flex", "flex"]),
    ({"projects.service_tier": "flex"}, "default", ["flex", "flex"]),
    (
        {"projects.service_tier": "flex", "api_keys.service_tier": "default"},
        None,
        [None, "default"],
    ),
    (
        {"projects.service_tier": "flex", "api_keys.may_raise_tier": True},
        "default",
        ["default", "default"],
    ),
]


@pytest.mark.parametrize(("columns", "asked", "served"), SITUATIONS)
async def test_default_tiers(
    online: Online,
    database: Database,
    columns: dict[str, object],
    asked: str | None,
    served: list[str | None],
) -> None:
    for column, value in columns.items():
        table, name = column.split(".")
        await set_of(database, table, name, value)
    assert await served_tiers(online, **({"service_tier": asked} if asked else {})) == served
    classes = {
        body.get("custom_params", {}).get("coserve", {}).get("class")
        for body in online.engine.received
    }
    assert classes == ({"flex"} if "flex" in served else {None})


async def test_flex_that_waits_is_served_when_there_is_room(
    online: Online, database: Database
) -> None:
    await set_of(database, "projects", "flex_wait_seconds", 30)
    online.engine.settings = replace(online.engine.settings, flex_slots=1)
    await online.app.state.engines.probe()
    long = {**online.chat("fake:tokens=40 fake:token_ms=10"), "service_tier": "flex"}
    async with online.http() as http:
        answers = await asyncio.gather(
            *(http.post("/v1/chat/completions", json=long) for _ in range(3))
        )
    assert [one.status_code for one in answers] == [200, 200, 200]
    assert {one.json()["service_tier"] for one in answers} == {"flex"}


async def test_the_wait_ends_with_its_time_or_its_client(
    online: Online, database: Database
) -> None:
    await set_of(database, "api_keys", "flex_wait_seconds", 1)
    online.engine.settings = replace(online.engine.settings, flex_slots=1)
    await online.app.state.engines.probe()
    body = {**online.chat("fake:tokens=2000 fake:token_ms=10"), "service_tier": "flex"}
    async with online.http() as http:
        holding = asyncio.ensure_future(http.post("/v1/chat/completions", json=body))
        await online.until_engine_is_busy()
        refused = await http.post("/v1/chat/completions", json=body)
        assert (refused.status_code, refused.json()["error"]["code"]) == (
            429,
            "resource_unavailable",
        )
        waiting = asyncio.ensure_future(http.post("/v1/chat/completions", json=body))
        line = online.app.state.prompt_parts.admission.flex_line
        async with asyncio.timeout(5):
            while not line.locked():
                await asyncio.sleep(0.01)
        for task in (waiting, holding):
            task.cancel()
        await asyncio.gather(waiting, holding, return_exceptions=True)
    async with asyncio.timeout(5):
        while line.locked():
            await asyncio.sleep(0.01)
    await online.until_engine_is_free()
    assert len(online.engine.received) == 1


class TestAlias:
    """One model under two names, in two classes."""

    @pytest.fixture
    def online_settings(self) -> dict[str, Any]:
        return {"model_aliases": f"background={MODEL}@flex,chat={MODEL}"}

    async def test_an_alias_has_a_tier(self, online: Online) -> None:
        assert await served_tiers(online, model="chat") == [None, "default"]
        assert await served_tiers(online, model="background") == ["flex", "flex"]
        assert await served_tiers(online, model="background", service_tier="priority") == [
            "flex",
            "flex",
        ]
        async with online.client() as client:
            names = {one.id async for one in client.models.list()}
        assert names == {MODEL, "background", "chat"}
