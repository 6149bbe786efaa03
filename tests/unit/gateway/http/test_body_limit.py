from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from gateway.http.access_log import AccessLog
from gateway.http.app import Gateway
from gateway.http.body_limit import FORM_BYTES, FORM_FIELDS, SMALL_BODY_BYTES, BodyLimits
from gateway.http.error_handlers import install_error_handlers
from gateway.observability.metrics import Metrics

LIMIT = SMALL_BODY_BYTES * 2
PROMPT = "/chat/completions"


async def length(request: Request) -> PlainTextResponse:
    return PlainTextResponse(str(len(await request.body())))


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    app = Gateway(BodyLimits(LIMIT, 2 * LIMIT, {PROMPT}), AccessLog(Metrics()))
    install_error_handlers(app)
    app.router.routes += [
        Route(path, length, methods=["POST"]) for path in (PROMPT, "/x", "/v1/files")
    ]
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://t") as made:
        yield made


async def chunks(num: int) -> AsyncIterator[bytes]:
    for _ in range(num):
        yield b"x" * 1024


async def test_up_to_the_limit(client: httpx.AsyncClient) -> None:
    for path, limit in ((PROMPT, LIMIT), ("/x", SMALL_BODY_BYTES)):
        assert (await client.post(path, content=b"x" * limit)).text == str(limit)
        assert (await client.post(path, content=chunks(limit // 1024))).text == str(limit)


async def test_over_the_limit_announced_or_not(client: httpx.AsyncClient) -> None:
    for path, limit in ((PROMPT, LIMIT), ("/x", SMALL_BODY_BYTES)):
        for content in (b"x" * (limit + 1), chunks(limit // 1024 + 1)):
            reply = await client.post(path, content=content)
            assert reply.status_code == 413
            assert reply.json()["error"]["code"] == "payload_too_large"
            assert reply.headers["x-request-id"].startswith("req_")


async def test_a_length_that_is_no_number(client: httpx.AsyncClient) -> None:
    reply = await client.post("/x", content=b"x", headers={"content-length": "-5"})
    assert reply.status_code == 400


async def test_uploads_have_limits_of_their_own(client: httpx.AsyncClient) -> None:
    reply = await client.post("/v1/files", content=b"x" * LIMIT * 2)
    assert reply.text == str(LIMIT * 2)


async def test_all_bodies_together_have_a_limit(client: httpx.AsyncClient) -> None:
    """Two that are held in the middle fill it; a third is refused until they are gone."""
    go_on, held = asyncio.Event(), asyncio.Semaphore(0)

    async def slow() -> AsyncIterator[bytes]:
        yield b"x" * LIMIT
        held.release()
        await go_on.wait()

    async with asyncio.TaskGroup() as group:
        first = [group.create_task(client.post(PROMPT, content=slow())) for _ in range(2)]
        for _ in first:
            await held.acquire()
        await asyncio.sleep(0.01)
        refused = await client.post(PROMPT, content=b"xy")
        assert (refused.status_code, refused.json()["error"]["code"]) == (
            503,
            "server_is_overloaded",
        )
        assert (await client.post("/x", content=b"xy")).text == "2"
        go_on.set()
    assert [task.result().text for task in first] == [str(LIMIT)] * 2
    assert (await client.post(PROMPT, content=b"xy")).text == "2"


FORM = {"content-type": "application/x-www-form-urlencoded"}


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"a=b&" * (FORM_FIELDS - 1), 200),
        (b"&" * FORM_FIELDS, 400),
        (b"a=" + b"%41" * (FORM_BYTES // 3), 413),
    ],
    ids=["few fields", "many fields", "long"],
)
async def test_a_form_is_short(client: httpx.AsyncClient, content: bytes, status: int) -> None:
    """The framework parses it a byte after the other, before it is known who sends it."""

    async def halves() -> AsyncIterator[bytes]:
        yield content[: len(content) // 2]
        yield content[len(content) // 2 :]

    assert (await client.post("/x", content=content, headers=FORM)).status_code == status
    assert (await client.post("/x", content=halves(), headers=FORM)).status_code == status


async def test_only_uploads_are_forms_in_parts(client: httpx.AsyncClient) -> None:
    parted = {"content-type": "Multipart/Form-Data; boundary=a"}
    for path, status in (("/x", 415), (PROMPT, 415), ("/v1/files", 200)):
        reply = await client.post(path, content=b"--a--", headers=parted)
        assert reply.status_code == status
