from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from engine_adapter.wire.errors import ApiError
from gateway.error_handlers import error_response
from gateway.middleware.body_limit import BodyLimitMiddleware
from gateway.middleware.request_id import RequestIdMiddleware


async def length(request: Request) -> PlainTextResponse:
    return PlainTextResponse(str(len(await request.body())))


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    app = Starlette(
        routes=[Route(path, length, methods=["POST"]) for path in ("/x", "/v1/files")],
        exception_handlers={ApiError: lambda _, error: error_response(error)},
    )
    app.add_middleware(BodyLimitMiddleware, limit_bytes=100)
    app.add_middleware(RequestIdMiddleware)
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://t") as made:
        yield made


async def chunks(num: int) -> AsyncIterator[bytes]:
    for _ in range(num):
        yield b"x" * 10


async def test_up_to_the_limit(client: httpx.AsyncClient) -> None:
    assert (await client.post("/x", content=b"x" * 100)).text == "100"
    assert (await client.post("/x", content=chunks(10))).text == "100"


async def test_over_the_limit_announced_or_not(client: httpx.AsyncClient) -> None:
    for content in (b"x" * 101, chunks(11)):
        reply = await client.post("/x", content=content)
        assert reply.status_code == 413
        assert reply.json()["error"]["code"] == "payload_too_large"
        assert reply.headers["x-request-id"].startswith("req_")


async def test_a_length_that_is_no_number(client: httpx.AsyncClient) -> None:
    reply = await client.post("/x", content=b"x", headers={"content-length": "-5"})
    assert reply.status_code == 400


async def test_uploads_have_limits_of_their_own(client: httpx.AsyncClient) -> None:
    assert (await client.post("/v1/files", content=b"x" * 500)).text == "500"
