"""A loop of the gateway that meets what it does not expect fails alone, and is told."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest
from aiohttp import web
from sqlalchemy import text

from gateway.auth.usage import UsageRecorder
from service.loops import DOWN_AFTER
from store.session import Database
from tests.fixtures.online import Gateway
from tests.integration.gateway.conftest import Online

LIMIT_S = 40.0
TABLES = {
    "usage": {"usage"},
    "engines": {"engine_list"},
    "full_stores": {"storage"},
    "suspects": {"quarantine"},
    "api_keys": {"revoked_keys"},
    "history_points": {"history"},
}
ALSO = {"api_keys": {"key_uses"}}
"""Loops that meet it only if they have something to do just then."""


async def rename(database: Database, table: str, name: str) -> None:
    async with database.unit_of_work() as session:
        await session.execute(text(f"ALTER TABLE {table} RENAME TO {name}"))


@asynccontextmanager
async def wrong(database: Database, table: str) -> AsyncIterator[None]:
    """The database answers, and not as it should."""
    await rename(database, table, f"{table}_elsewhere")
    try:
        yield
    finally:
        await rename(database, f"{table}_elsewhere", table)


async def failures(http: httpx.AsyncClient) -> dict[str, float]:
    told = (await http.get("/metrics")).text
    found = re.findall(r'^coserve_loop_failures_total\{loop="(\w+)"\} (\S+)$', told, re.MULTILINE)
    return {loop: float(num) for loop, num in found}


async def until_down(http: httpx.AsyncClient, names: set[str]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not names <= set((await http.get("/readyz")).json().get("loops_down", ())):
            await asyncio.sleep(0.05)


async def chat(gateway: Gateway) -> None:
    async with gateway.http() as caller:
        answer = await caller.post("/v1/chat/completions", json=gateway.chat("a"))
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("table", TABLES)
async def test_a_loop_that_always_fails_is_down_alone(
    online: Online, database: Database, table: str
) -> None:
    names = TABLES[table]
    usage: UsageRecorder = online.app.state.usage
    async with httpx.AsyncClient(base_url=online.url) as http, online.http() as caller:
        known = await failures(http)
        assert set(known) >= {"limits", "requests_at_once", "engine", "engine_facts", *names}
        assert not any(known.values())
        await chat(online)
        body = online.chat("fake:tokens=1500 fake:token_ms=40", stream=True, max_tokens=1500)
        async with caller.stream("POST", "/v1/chat/completions", json=body):
            async with wrong(database, table):
                await until_down(http, names)
                ready, status = await http.get("/readyz"), await http.get("/statusz")
                assert ready.status_code == 503
                told, said = ready.json(), status.json()
                assert told["status"] == "failing"
                assert names <= set(told["loops_down"]) <= names | ALSO.get(table, set())
                assert (status.status_code, said["status"]) == (200, "degraded")
                assert names <= set(said["loops_down"])
                assert all(name in said["parts"]["loops"]["why"] for name in names)
                counted = {loop for loop, num in (await failures(http)).items() if num}
                assert names <= counted <= names | ALSO.get(table, set())
                assert min(map((await failures(http)).__getitem__, names)) >= DOWN_AFTER
                await chat(online)
            async with asyncio.timeout(LIMIT_S):
                while (await http.get("/readyz")).status_code != 200:
                    await asyncio.sleep(0.05)
    assert await usage.flush()
    async with database.unit_of_work() as session:
        num = await session.scalar(text("SELECT sum(num_requests) FROM usage"))
    assert num >= 2, "nothing is lost by it"


async def test_a_loop_that_fails_once_goes_on(online: Online, database: Database) -> None:
    async with httpx.AsyncClient(base_url=online.url) as http, asyncio.timeout(LIMIT_S):
        async with wrong(database, "full_stores"):
            while not (await failures(http))["storage"]:
                await asyncio.sleep(0.02)
        assert (await http.get("/readyz")).status_code == 200
        async with database.unit_of_work() as session:
            await session.execute(
                text("UPDATE full_stores SET full_at = now() WHERE store = 'files'")
            )
        while "storage_full" not in (await http.get("/readyz")).json():
            await asyncio.sleep(0.05)


ANSWERS = {
    "list": b"[]",
    "null": b"null",
    "number": b"1e400",
    "html": b"<html><body>It works!</body></html>",
    "nothing": b"",
    "deep": b"[" * 100_000,
    "large": b'{"model": "' + b"x" * 10_000_000 + b'"}',
    "wrong shapes": b'{"internal_states": [[1]], "data": {"id": 7}, "version": [], "coserve": 1}',
}


@pytest.mark.parametrize("name", ANSWERS)
async def test_an_engine_that_answers_anything_is_not_used_and_disturbs_nobody(
    online: Online, database: Database, name: str
) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=ANSWERS[name], content_type="application/json")

    app = web.Application()
    app.router.add_route("*", "/{any:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = "http://{}:{}".format(*runner.addresses[0][:2])
    async with database.unit_of_work() as session:
        await session.execute(
            text("INSERT INTO engines (url, created_at, added_at) VALUES (:url, now(), now())"),
            {"url": url},
        )
    engines = online.app.state.engines
    async with httpx.AsyncClient(base_url=online.url) as http:
        async with asyncio.timeout(LIMIT_S):
            while not all(one.asked for one in engines.members) or len(engines.members) < 2:
                await asyncio.sleep(0.02)
        (odd,) = (one for one in engines.members if one.url == url)
        assert not odd.up
        assert odd.why
        for _ in range(4):
            await chat(online)
        assert not any((await failures(http)).values())
        assert (await http.get("/readyz")).status_code == 200
    await runner.cleanup()
