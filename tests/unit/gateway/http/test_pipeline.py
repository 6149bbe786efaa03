"""What every request passes: the same for a prompt as for anything else."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import httpx
import pytest
from fastapi import APIRouter, FastAPI, Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from api.errors import NotFound
from gateway.http.access_log import AccessLog
from gateway.http.app import Gateway
from gateway.http.body_limit import BodyLimits
from gateway.http.direct_route import DirectRoute
from gateway.http.error_handlers import install_error_handlers
from gateway.observability.metrics import Metrics

PROMPT, PLAIN = "/v1/chat/completions", "/v1/things"
LIMIT = 1000
ORIGIN = "https://elsewhere.example"


class Broken(Response):
    """Breaks after its first piece."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"a piece", "more_body": True})
        raise RuntimeError("broken in the middle")


async def endpoint(request: Request) -> Response:
    """Do what the body says."""
    body = await request.body()
    if body == b"missing":
        raise NotFound("It is not there.", headers={"retry-after": "1"})
    if body == b"defect":
        raise RuntimeError("the password is hunter2")
    if body == b"late":
        return Broken()
    return Response(body, headers={"x-own": "1"})


@pytest.fixture
def app() -> Gateway:
    """One endpoint, as the route of a prompt and as one of the framework's."""
    metrics = Metrics()
    app = Gateway(BodyLimits(LIMIT, 2 * LIMIT, {PROMPT}), AccessLog(metrics), [ORIGIN])
    app.state.metrics = metrics
    install_error_handlers(app)
    app.router.routes.append(DirectRoute(PROMPT, endpoint, methods=["POST"]))
    router = APIRouter()
    router.add_api_route(PLAIN, endpoint, methods=["POST"])
    app.include_router(router)
    return app


def client(app: FastAPI) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://t")


@pytest.mark.parametrize("path", [PROMPT, PLAIN])
@pytest.mark.parametrize("slash", ["", "/"])
@pytest.mark.parametrize("headers", [{}, {"origin": ORIGIN}], ids=["plain", "origin"])
@pytest.mark.parametrize(
    ("body", "status"),
    [(b"hello", 200), (b"missing", 404), (b"defect", 500), (b"x" * (LIMIT + 1), 413)],
)
async def test_every_answer_says_whose_it_is(
    app: Gateway, path: str, slash: str, headers: dict[str, str], body: bytes, status: int
) -> None:
    async with client(app) as http:
        reply = await http.post(path + slash, content=body, headers=headers)
    assert reply.status_code == status
    assert reply.headers["x-request-id"].startswith("req_")
    assert reply.headers["openai-processing-ms"].isdigit()
    assert b"hunter2" not in reply.content
    if status != 200:
        assert list(reply.json()["error"]) == ["message", "type", "param", "code"]
    if status != 500:
        assert reply.headers.get("access-control-allow-origin") == headers.get("origin")
    assert app.bodies.held_bytes == 0


async def test_a_pages_preflight_is_answered_and_noted(app: Gateway) -> None:
    asked = {"origin": ORIGIN, "access-control-request-method": "POST"}
    async with client(app) as http:
        reply = await http.options(PROMPT, headers=asked)
    assert reply.status_code == 200
    assert reply.headers["access-control-allow-origin"] == ORIGIN
    assert reply.headers["x-request-id"].startswith("req_")


async def test_every_request_is_counted_and_logged(
    app: Gateway, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "gateway.access")
    async with client(app) as http:
        for path in (PROMPT, f"{PLAIN}/", "/nothing"):
            await http.post(path, content=b"missing")
    await asyncio.sleep(0.1)
    lines = [record.__dict__["fields"] for record in caplog.records if record.msg == "request"]
    assert [(line["path"], line["status"]) for line in lines] == [
        (PROMPT, 404), (PLAIN, 404), ("/nothing", 404),
    ]  # fmt: skip
    for route in ("/chat/completions", "/things", "unmatched"):
        counted = app.state.metrics.http_requests.labels("POST", route, "404")
        assert counted._value.get() == 1


async def test_what_breaks_in_the_middle_is_cut_off(app: Gateway) -> None:
    for path in (PROMPT, PLAIN):
        sent: list[Message] = []
        with pytest.raises(RuntimeError, match="in the middle"):
            await serve(app, path, b"late", sent)
        assert [one["type"] for one in sent] == ["http.response.start", "http.response.body"]


async def test_a_caller_who_left_is_not_answered(app: Gateway) -> None:
    for path in (PROMPT, PLAIN):
        sent: list[Message] = []
        await serve(app, path, None, sent)
        assert sent == []
    assert app.bodies.held_bytes == 0


async def serve(app: Gateway, path: str, body: bytes | None, sent: list[Message]) -> None:
    """One request; without a body its caller has left."""
    scope: dict[str, Any] = {
        "type": "http", "method": "POST", "path": path, "root_path": "", "headers": [],
        "query_string": b"", "state": {},
    }  # fmt: skip

    async def receive() -> Message:
        if body is None:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": body}

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope, receive, send)
