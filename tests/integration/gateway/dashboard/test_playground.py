"""The playground is served as the API is, for operators alone, under their own keys."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import orjson

from store.models import DEFAULT_PROJECT_ID
from store.repositories import key as keys
from store.session import Database
from tests.fixtures.dashboard import log_in
from tests.integration.gateway.conftest import MODEL, Online

CHAT = {"model": MODEL, "messages": [{"role": "user", "content": "one two"}]}


@asynccontextmanager
async def logged_in(
    online: Online, database: Database, role: str
) -> AsyncIterator[httpx.AsyncClient]:
    async with database.unit_of_work() as session:
        _, key = await keys.create(session, DEFAULT_PROJECT_ID, role, role=role)
    async with httpx.AsyncClient(base_url=online.url) as client:
        assert (await log_in(client, key)).status_code == 303
        yield client


async def test_an_operator_asks(online: Online, database: Database) -> None:
    async with logged_in(online, database, "operator") as client:
        shown = await client.get("/admin/playground")
        assert f"<option>{MODEL}</option>" in shown.text
        token = {"x-csrf-token": token_in_form(shown.text)}
        reply = await client.post("/admin/playground", json=CHAT | {"stream": True}, headers=token)
        assert reply.status_code == 200
        assert reply.headers["content-type"].startswith("text/event-stream")
        assert reply.text.endswith("data: [DONE]\n\n")
        wrong = await client.post("/admin/playground", json=CHAT | {"model": "x"}, headers=token)
        assert wrong.status_code == 404
        assert orjson.loads(wrong.content)["error"]["code"] == "model_not_found"
        forged = await client.post("/admin/playground", json=CHAT)
        assert forged.status_code == 403


async def test_a_viewer_does_not(online: Online, database: Database) -> None:
    async with logged_in(online, database, "viewer") as client:
        assert (await client.get("/admin/playground")).status_code == 403
        assert "Playground" not in (await client.get("/admin/")).text


def token_in_form(html: str) -> str:
    return html.split('data-token="', 1)[1].split('"', 1)[0]
