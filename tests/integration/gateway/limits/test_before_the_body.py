"""Limits are asked before a body is read: a refusal costs no parsing."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import orjson
import pytest
from redis.asyncio import Redis

from gateway.http.app import Gateway
from gateway.limits.valkey import SINCE_KEY
from store.session import Database
from tests.integration.gateway.conftest import Online
from tests.integration.gateway.limits.test_door import limit

PROMPT_PATHS = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses")
LARGE = 4 * 1024 * 1024


@pytest.fixture(autouse=True)
async def old_state(broker_url: str) -> None:
    async with Redis.from_url(broker_url) as client:
        await client.set(SINCE_KEY, 1)


async def head_alone(online: Online, path: str, length: int, *more: str) -> bytes:
    """The answer to a request whose body never comes."""
    host = online.url.removeprefix("http://")
    reader, writer = await asyncio.open_connection(*host.split(":"))
    lines = [f"POST {path} HTTP/1.1", f"host: {host}", f"authorization: Bearer {online.key}",
             "content-type: application/json", f"content-length: {length}", *more]  # fmt: skip
    writer.write("\r\n".join([*lines, "", ""]).encode())
    try:
        async with asyncio.timeout(10):
            return await reader.readuntil(b"\r\n\r\n")
    finally:
        writer.close()


@pytest.mark.parametrize("path", PROMPT_PATHS)
@pytest.mark.parametrize("length", [100, LARGE])
@pytest.mark.parametrize("origin", [(), ("origin: https://page.example",)])
async def test_a_refusal_does_not_wait_for_the_body(
    online: Online, database: Database, path: str, length: int, origin: tuple[str, ...]
) -> None:
    await limit(database, "projects", requests_per_minute=0)
    assert (await head_alone(online, path, length, *origin)).startswith(b"HTTP/1.1 429")


@pytest.mark.parametrize("limits", [{"tokens_per_minute": 0}, {"concurrent_requests": 0}])
async def test_tokens_and_requests_at_once_are_asked_first_too(
    online: Online, database: Database, limits: dict[str, int]
) -> None:
    await limit(database, "projects", **limits)
    assert (await head_alone(online, PROMPT_PATHS[0], LARGE)).startswith(b"HTTP/1.1 429")


async def test_a_large_refused_body_holds_no_memory_of_others(
    online: Online, database: Database
) -> None:
    await limit(database, "projects", requests_per_minute=1)
    body = orjson.dumps(online.chat("x" * LARGE))
    headers = {"content-type": "application/json"}
    async with online.http() as http:
        await http.post(PROMPT_PATHS[0], json=online.chat("hi fake:tokens=1"))
        for _ in range(3):
            reply = await http.post(PROMPT_PATHS[0], content=body, headers=headers)
            assert reply.status_code == 429
    assert cast(Gateway, online.app).bodies.held_bytes == 0


async def test_large_wrong_bodies_count_as_requests(online: Online, database: Database) -> None:
    await limit(database, "projects", requests_per_minute=2)
    async with online.http() as http:
        wrong: dict[str, Any] = online.chat("x" * 100_000, n=0)
        statuses = [(await http.post(PROMPT_PATHS[0], json=wrong)).status_code for _ in range(3)]
    assert statuses == [400, 400, 429]


class TestBytes:
    @pytest.fixture
    def online_settings(self) -> dict[str, Any]:
        return {"project_bytes_per_minute": 1024 * 1024}

    async def test_large_bodies_are_limited_by_their_bytes(self, online: Online) -> None:
        large, small = online.chat("x" * 600_000), online.chat("hi fake:tokens=1")
        async with online.http() as http:
            first = await http.post(PROMPT_PATHS[0], json=large)
            assert first.status_code == 200
            refused = await http.post(PROMPT_PATHS[0], json=large)
            assert (refused.status_code, "bytes" in refused.text) == (429, True)
            assert int(refused.headers["retry-after"]) >= 1
            assert (await http.post(PROMPT_PATHS[0], json=small)).status_code == 200

    async def test_bodies_in_chunks_are_limited_too(self, online: Online) -> None:
        raw = orjson.dumps(online.chat("x" * 600_000))

        async def pieces() -> Any:
            yield raw[:1000]
            yield raw[1000:]

        headers = {"content-type": "application/json"}
        async with online.http() as http:
            found = [
                await http.post(PROMPT_PATHS[0], content=pieces(), headers=headers)
                for _ in range(2)
            ]
        assert [reply.status_code for reply in found] == [200, 429]


class TestOtherEndpoints:
    @pytest.fixture
    def online_settings(self) -> dict[str, Any]:
        groups = ("models", "files", "uploads", "batches", "responses", "conversations",
                  "webhook_endpoints", "organization")  # fmt: skip
        return {"endpoint_requests_per_minute": ",".join(f"{group}=2" for group in groups)}

    @pytest.mark.parametrize(
        "path",
        ["/v1/models", "/v1/files", "/v1/uploads/upload_1", "/v1/batches", "/v1/responses/resp_1",
         "/v1/conversations/conv_1", "/v1/webhook_endpoints", "/v1/organization/projects"],
    )  # fmt: skip
    async def test_every_endpoint_has_a_rate(self, online: Online, path: str) -> None:
        method = "DELETE" if "uploads" in path else "GET"
        if "uploads" in path:
            method, path = "POST", path + "/cancel"
        async with online.http() as http:
            found = [await http.request(method, path) for _ in range(3)]
            bare = await http.request(method, path.removeprefix("/v1"))
        assert 429 not in [reply.status_code for reply in found[:2]]
        assert found[2].status_code == bare.status_code == 429
        assert found[2].headers["retry-after"]
