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
        line = online.app.state.prompt_parts.admission.flex_lines[MODEL]
        async with asyncio.timeout(5):
            while not len(line):
                await asyncio.sleep(0.01)
        for task in (waiting, holding):
            task.cancel()
        await asyncio.gather(waiting, holding, return_exceptions=True)
    async with asyncio.timeout(5):
        while len(line):
            await asyncio.sleep(0.01)
    await online.until_engine_is_free()
    assert len(online.engine.received) == 1


class TestFlexThatWaits:
    """What somebody in line is told, whole and streamed."""

    @pytest.fixture
    def online_settings(self) -> dict[str, Any]:
        return {"keep_alive_s": 0.2}

    async def test_place_and_wait_are_told(self, online: Online, database: Database) -> None:
        await set_of(database, "projects", "flex_wait_seconds", 30)
        online.engine.settings = replace(online.engine.settings, flex_slots=1)
        await online.app.state.engines.probe()
        body = {**online.chat("fake:tokens=40 fake:token_ms=10"), "service_tier": "flex"}
        async with online.http() as http:
            holding = asyncio.ensure_future(http.post("/v1/chat/completions", json=body))
            await online.until_engine_is_busy()
            waiting = [
                asyncio.ensure_future(http.post("/v1/chat/completions", json=body))
                for _ in range(2)
            ]
            line = online.app.state.prompt_parts.admission.flex_lines[MODEL]
            async with asyncio.timeout(5):
                while len(line) < 2:
                    await asyncio.sleep(0.01)
            stream = {**body, "stream": True}
            async with http.stream("POST", "/v1/chat/completions", json=stream) as answer:
                lines = [one async for one in answer.aiter_lines() if one]
            first, *others = await asyncio.gather(holding, *waiting)
        assert answer.status_code == 200
        assert answer.headers["x-coserve-flex-place"] == "3"
        comments = [one for one in lines if one.startswith(":")]
        assert comments[0] == ": waiting for spare capacity, place 3"
        assert any("place 1, about " in one for one in comments), comments
        assert lines[-1] == "data: [DONE]"
        assert '"service_tier":"flex"' in lines[-2]
        assert "x-coserve-flex-place" not in first.headers
        assert sorted(one.headers["x-coserve-flex-place"] for one in others) == ["1", "2"]

    @pytest.mark.parametrize("path", ["chat/completions", "responses"])
    async def test_a_stream_that_began_ends_with_the_error(
        self, online: Online, database: Database, path: str
    ) -> None:
        await set_of(database, "projects", "flex_wait_seconds", 1)
        online.engine.settings = replace(online.engine.settings, flex_slots=1)
        await online.app.state.engines.probe()
        long = {**online.chat("fake:tokens=2000 fake:token_ms=10"), "service_tier": "flex"}
        asked = long if path == "chat/completions" else {
            "model": MODEL, "input": "hi", "service_tier": "flex"
        }  # fmt: skip
        async with online.http() as http:
            holding = asyncio.ensure_future(http.post("/v1/chat/completions", json=long))
            await online.until_engine_is_busy()
            body = {**asked, "stream": True}
            async with http.stream("POST", f"/v1/{path}", json=body) as answer:
                lines = [one async for one in answer.aiter_lines() if one]
            refused = await http.post(f"/v1/{path}", json=asked)
            holding.cancel()
            await asyncio.gather(holding, return_exceptions=True)
        assert answer.status_code == 200
        assert lines[0] == ": waiting for spare capacity, place 1"
        assert ("resource_unavailable" if path != "responses" else "response.failed") in lines[-1]
        assert len([one for one in lines if one.startswith("data:")]) <= 3, lines
        assert refused.status_code == 429
        assert refused.headers["x-coserve-flex-place"] == "1"
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
            told = {one.id: one.to_dict() async for one in client.models.list()}
            one = await client.models.retrieve("background")
        assert {name: model["service_tier"] for name, model in told.items()} == {
            MODEL: "default", "background": "flex", "chat": "default",
        }  # fmt: skip
        assert one.to_dict() == told["background"]

    async def test_models_tell_what_a_key_gets(self, online: Online, database: Database) -> None:
        await set_of(database, "api_keys", "service_tier", "flex")
        async with online.http() as http:
            listed = (await http.get("/v1/models")).json()["data"]
        assert {one["service_tier"] for one in listed} == {"flex"}
