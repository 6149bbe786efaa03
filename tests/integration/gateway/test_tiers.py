"""A key, a project or an alias decides how its requests are served; clients change nothing."""

from __future__ import annotations

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
