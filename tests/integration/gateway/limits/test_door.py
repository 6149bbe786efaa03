"""Limits as callers meet them: headers, refusals, settlements, and what does not count."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from typing import Any

import httpx
import openai
import pytest
from redis.asyncio import Redis
from sqlalchemy import text

from engine_adapter.client.http import HttpEngineClient
from gateway.limits.valkey import SINCE_KEY
from store.session import Database
from tests.fixtures.batches import Bench, add_batch, line
from tests.integration.gateway.conftest import MODEL, Online

KINDS = ("requests", "tokens")
HEADERS = {
    f"x-ratelimit-{what}-{kind}" for what in ("limit", "remaining", "reset") for kind in KINDS
}
CHAT = "/v1/chat/completions"


@pytest.fixture(autouse=True)
async def old_state(broker_url: str) -> None:
    """Valkey has kept its state for long, so that unknown buckets are full."""
    async with Redis.from_url(broker_url) as client:
        await client.set(SINCE_KEY, 1)


async def limit(database: Database, table: str, **limits: int) -> None:
    """Set limits of every key or project there is."""
    async with database.unit_of_work() as session:
        for name, value in limits.items():
            await session.execute(text(f"UPDATE {table} SET {name} = :value"), {"value": value})


async def ask(online: Online, prompt: str = "hi fake:tokens=2", **more: Any) -> httpx.Response:
    async with online.http() as http:
        return await http.post(CHAT, json=online.chat(prompt, **more))


async def remaining(online: Online, kind: str) -> int:
    reply = await ask(online, max_tokens=1)
    return int(reply.headers[f"x-ratelimit-remaining-{kind}"])


async def test_without_limits_there_are_no_headers(online: Online) -> None:
    reply = await ask(online)
    assert reply.status_code == 200
    assert not HEADERS & set(reply.headers)


@pytest.mark.contract("T-10", "S-20")
async def test_headers_of_whole_and_streamed_answers(online: Online, database: Database) -> None:
    await limit(database, "api_keys", requests_per_minute=60, tokens_per_minute=6000)
    for stream in (False, True):
        reply = await ask(online, max_tokens=100, stream=stream)
        assert set(reply.headers) >= HEADERS
        assert reply.headers["x-ratelimit-limit-requests"] == "60"
        assert reply.headers["x-ratelimit-limit-tokens"] == "6000"
        assert int(reply.headers["x-ratelimit-remaining-requests"]) < 60
        assert 5500 < int(reply.headers["x-ratelimit-remaining-tokens"]) < 6000
        for kind in KINDS:
            assert re.fullmatch(r"(\d+[hms]+)+", reply.headers[f"x-ratelimit-reset-{kind}"])


@pytest.mark.contract("T-10", "T-20", "T-21")
async def test_too_many_requests(online: Online, database: Database) -> None:
    await limit(database, "api_keys", requests_per_minute=2)
    for _ in range(2):
        assert (await ask(online)).status_code == 200
    reply = await ask(online)
    assert reply.status_code == 429
    error = reply.json()["error"]
    assert list(error) == ["message", "type", "param", "code"]
    assert (error["type"], error["code"]) == ("requests", "rate_limit_exceeded")
    assert reply.headers["x-ratelimit-remaining-requests"] == "0"
    assert 1 <= int(reply.headers["retry-after"]) <= 30
    async with online.client() as client:
        with pytest.raises(openai.RateLimitError) as refused:
            await client.chat.completions.create(**online.chat("hi"))
    assert refused.value.code == "rate_limit_exceeded"


@pytest.mark.contract("T-21")
async def test_responses_and_chat_share_their_limits(online: Online, database: Database) -> None:
    await limit(database, "api_keys", requests_per_minute=3, tokens_per_minute=6000)
    body = {"model": MODEL, "input": "hi fake:tokens=2"}
    kinds: tuple[dict[str, bool], ...] = ({}, {"stream": True}, {"background": True})
    async with online.http() as http:
        replies = [await http.post("/v1/responses", json=body | more) for more in kinds]
        assert [reply.status_code for reply in replies] == [200] * 3
        assert set(replies[0].headers) >= HEADERS
        assert (await ask(online)).status_code == 429
        for more in kinds:
            error = (await http.post("/v1/responses", json=body | more)).json()["error"]
            assert (error["type"], error["code"]) == ("requests", "rate_limit_exceeded")


@pytest.mark.contract("T-21")
async def test_too_many_tokens(online: Online, database: Database) -> None:
    await limit(database, "projects", tokens_per_minute=100)
    reply = await ask(online, max_tokens=200)
    assert reply.status_code == 429
    assert reply.json()["error"]["type"] == "tokens"
    assert reply.headers["x-should-retry"] == "false"
    assert (await ask(online, "hi fake:tokens=80", max_tokens=80)).status_code == 200
    reply = await ask(online, max_tokens=80)
    assert (reply.status_code, reply.json()["error"]["type"]) == (429, "tokens")
    assert "x-should-retry" not in reply.headers


@pytest.mark.contract("T-19", "T-21")
async def test_no_quota_at_all(online: Online, database: Database) -> None:
    await limit(database, "projects", requests_per_minute=0)
    reply = await ask(online)
    error = reply.json()["error"]
    assert (reply.status_code, error["type"], error["code"]) == (
        429, "insufficient_quota", "insufficient_quota",
    )  # fmt: skip
    async with online.client(max_retries=3) as client:
        with pytest.raises(openai.RateLimitError):
            await client.chat.completions.create(**online.chat("hi"))
    async with online.http() as http:
        metrics = (await http.get("/metrics")).text
    # One of ours, one of the SDK's: it did not repeat it.
    assert 'coserve_rate_limited_total{kind="requests",scope="project"} 2.0' in metrics
    assert not online.engine.received


async def test_what_was_reserved_and_not_used_flows_back(
    online: Online, database: Database
) -> None:
    await limit(database, "api_keys", tokens_per_minute=1000)
    for _ in range(5):
        reply = await ask(online, "hi fake:tokens=2", max_tokens=900)
        assert reply.status_code == 200
        await asyncio.sleep(0.15)
    assert await remaining(online, "tokens") > 950


async def test_a_caller_that_goes_away_pays_for_what_was_served(
    online: Online, database: Database
) -> None:
    await limit(database, "api_keys", tokens_per_minute=1000)
    async with online.client() as client:
        stream = await client.chat.completions.create(
            **online.chat("fake:tokens=800 fake:token_ms=10"), max_tokens=900, stream=True
        )
        async for _ in stream:
            break
        await stream.close()
    async with asyncio.timeout(5):
        while await remaining(online, "tokens") < 900:
            await asyncio.sleep(0.1)


async def test_a_refused_body_costs_nothing(online: Online, database: Database) -> None:
    await limit(database, "api_keys", requests_per_minute=10)
    for _ in range(20):
        assert (await ask(online, n=0)).status_code == 400
    assert await remaining(online, "requests") == 9


@pytest.mark.contract("B-32")
async def test_batches_leave_the_online_limit_alone(online: Online, database: Database) -> None:
    await limit(database, "api_keys", requests_per_minute=10, tokens_per_minute=1000)
    await limit(database, "projects", requests_per_minute=10, tokens_per_minute=1000)
    bench = Bench(database)
    lines = [
        line(str(i), "fake:tokens=40").replace(b"fake-model", MODEL.encode()) for i in range(50)
    ]
    await add_batch(database, bench.file_store, lines, model=MODEL)
    client = HttpEngineClient(online.app.state.engines.members[0].url)
    ended = await bench.dispatch(client)
    await client.close()
    assert ended.num_written == 50
    assert online.engine.served["offline"].completion_tokens == 50 * 40
    reply = await ask(online, max_tokens=1)
    assert reply.headers["x-ratelimit-remaining-requests"] == "9"
    assert int(reply.headers["x-ratelimit-remaining-tokens"]) > 980


@pytest.mark.contract("C-26", "C-27")
async def test_flex_without_room(online: Online) -> None:
    online.engine.settings = replace(online.engine.settings, flex_slots=1)
    await online.app.state.engines.probe()
    async with online.client() as client:
        create = client.chat.completions.create
        first = await create(
            **online.chat("fake:tokens=200 fake:token_ms=10"), stream=True, service_tier="flex"
        )
        async for chunk in first:
            assert chunk.service_tier == "flex"
            break
        reply = await ask(online, service_tier="flex")
        error = reply.json()["error"]
        assert (reply.status_code, error["code"]) == (429, "resource_unavailable")
        assert reply.headers["retry-after"]
        assert "x-should-retry" not in reply.headers
        # Never served as something else instead, and nobody else is in its way.
        assert "flex" in {body.get("custom_params", {}).get("coserve", {}).get("class")
                          for body in online.engine.received}  # fmt: skip
        assert len(online.engine.received) == 1
        assert (await ask(online)).status_code == 200
        await first.close()
    await online.until_engine_is_free()
    async with asyncio.timeout(5):
        while (reply := await ask(online, service_tier="flex")).status_code == 429:
            await asyncio.sleep(0.05)
    assert reply.json()["service_tier"] == "flex"


class TestWithoutValkey:
    """The gateway's Valkey cannot be reached at all."""

    @pytest.fixture
    def online_settings(self) -> dict[str, Any]:
        return {"key_requests_per_minute": 10}

    @pytest.fixture
    def broker_url(self) -> str:
        return "redis://127.0.0.1:1/0"

    @pytest.fixture(autouse=True)
    def old_state(self) -> None:
        """There is none."""

    async def test_limits_are_kept_in_the_process(self, online: Online) -> None:
        statuses = [(await ask(online)).status_code for _ in range(7)]
        assert statuses == [200] * 5 + [429] * 2
        async with online.http() as http:
            metrics = (await http.get("/metrics")).text
        assert "coserve_rate_limit_fallbacks_total 7.0" in metrics
        assert 'coserve_rate_limited_total{kind="requests",scope="key"} 2.0' in metrics
