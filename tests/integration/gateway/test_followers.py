"""Who follows background responses and results: what it costs, and how many may."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from typing import Any

import httpx
import pytest
from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncSession

from gateway import followers
from gateway.followers import Followers
from service.clock import SystemClock
from store.repositories import response as responses
from store.session import Database
from tests.fixtures.batches import PATIENCE_S, add_batch, line
from tests.fixtures.live_gateway import Api

MINE = "proj_default"


@contextmanager
def statements(database: Database) -> Iterator[list[str]]:
    seen: list[str] = []

    def note(_: object, __: object, statement: str, *___: object) -> None:
        seen.append(statement)

    event.listen(database.engine.sync_engine, "before_cursor_execute", note)
    try:
        yield seen
    finally:
        event.remove(database.engine.sync_engine, "before_cursor_execute", note)


async def test_a_hundred_that_follow_one_response_read_it_once(database: Database) -> None:
    async def look(session: AsyncSession) -> bool:
        return await responses.get(session, MINE, "resp_x") is not None

    room: Followers[bool] = Followers(database, SystemClock(), responses.states, "responses")
    with statements(database) as seen, ExitStack() as stack:
        one, *others = [
            stack.enter_context(room.following(MINE, "resp_x", look))
            for _ in range(followers.MAX_FOLLOWERS)
        ]
        assert all(other is one for other in others), "they share what is read"
        async with asyncio.timeout(PATIENCE_S):
            while one.state is None:
                await asyncio.sleep(0.01)
        assert await asyncio.gather(*(one.seen() for _ in range(50))) == [False] * 50
        assert len([s for s in seen if "resp_x" not in s and "expires_at" in s]) == 1
    async with asyncio.timeout(PATIENCE_S):
        while room._polling is not None:
            await asyncio.sleep(0.05)


async def test_a_project_has_a_limit_of_followers(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(followers, "MAX_FOLLOWERS", 3)

    async with AsyncExitStack() as stack:

        async def begin(key: str | None = None) -> tuple[httpx.AsyncClient, str]:
            sdk = api.client() if key is None else api.client(key)
            http = httpx.AsyncClient(
                base_url=str(sdk.base_url),
                headers={"Authorization": f"Bearer {sdk.api_key}"},
                timeout=PATIENCE_S,
            )
            stack.push_async_callback(http.aclose)
            made = {"model": "m", "input": "x", "background": True}
            reply = await http.post("responses", json=made)
            assert reply.status_code == 200, reply.text
            return http, reply.json()["id"]

        http, response_id = await begin()
        beside, others_id = await begin(api.other_key)
        path, wanted = f"responses/{response_id}", {"stream": "true"}
        told = []  # whoever lets go of one closes its reply
        async with AsyncExitStack() as following:
            for _ in range(3):
                reply = await following.enter_async_context(http.stream("GET", path, params=wanted))
                assert reply.status_code == 200
                told.append(reply.aiter_bytes())
                await anext(told[-1])
            refused = await http.get(path, params=wanted)
            assert refused.status_code == 429
            error: dict[str, Any] = refused.json()["error"]
            assert error["code"] == "rate_limit_exceeded"
            assert "3 background responses" in error["message"]
            made = {"model": "m", "input": "x", "background": True, "stream": True}
            assert (await http.post("responses", json=made)).status_code == 429
            assert (await http.get(path)).status_code == 200, "whoever asks now and then may"
            async with beside.stream("GET", f"responses/{others_id}", params=wanted) as other:
                assert other.status_code == 200
        async with asyncio.timeout(PATIENCE_S):
            while api.app.state.followers._num_by_project:
                await asyncio.sleep(0.05)
        async with http.stream("GET", path, params=wanted) as again:
            assert again.status_code == 200


NUM_FEEDS = 20


async def test_feeds_of_results_ask_the_database_only_when_there_are_more(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them asked twice a second, and there might be thousands."""
    monkeypatch.setattr(followers, "MAX_FOLLOWERS", NUM_FEEDS)
    database: Database = api.app.state.database
    batch_id = await add_batch(database, api.app.state.file_store, [line("a"), line("b")])
    path = f"/batches/{batch_id}/results/stream"
    headers = {"Authorization": f"Bearer {api.key}"}
    async with (
        httpx.AsyncClient(base_url=api.base_url, headers=headers, timeout=PATIENCE_S) as http,
        AsyncExitStack() as following,
    ):
        told = []
        for _ in range(NUM_FEEDS):
            reply = await following.enter_async_context(http.stream("GET", path))
            assert reply.status_code == 200
            told.append(reply.aiter_bytes())
            await anext(told[-1])
        refused = await http.get(path)
        assert refused.status_code == 429
        assert f"{NUM_FEEDS} results of batches" in refused.json()["error"]["message"]
        await asyncio.sleep(4 * followers.POLL_INTERVAL_S)
        with statements(database) as seen:
            await asyncio.sleep(8 * followers.POLL_INTERVAL_S)
        assert len([one for one in seen if "row_results" in one]) == 0
        assert len([one for one in seen if "num_results AS state" in one]) > 1
    async with asyncio.timeout(PATIENCE_S):
        while api.app.state.feeds._num_by_project:
            await asyncio.sleep(0.05)
