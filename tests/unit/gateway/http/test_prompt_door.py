from __future__ import annotations

import asyncio
import logging

import httpx
import pytest
from fastapi import FastAPI, Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from api.errors import NotFound
from gateway.http.direct_route import DirectRoute
from gateway.http.error_handlers import install_error_handlers
from gateway.http.middleware.access_log import AccessLog, AccessLogMiddleware
from gateway.http.middleware.body_limit import BodyLimitMiddleware, BodyLimits
from gateway.http.middleware.boundary import BoundaryMiddleware
from gateway.http.middleware.request_id import RequestIdMiddleware
from gateway.http.prompt_door import PromptDoor
from gateway.observability.metrics import Metrics

PATH = "/v1/chat/completions"
LIMIT = 1000


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


class Both:
    """The same route through the layers and through the door."""

    def __init__(self) -> None:
        self.bodies = BodyLimits(LIMIT, 2 * LIMIT)
        self.metrics = Metrics()
        log = AccessLog(self.metrics)
        route = DirectRoute(PATH, endpoint, methods=["POST"])
        self.layers = FastAPI()
        install_error_handlers(self.layers)
        self.layers.router.routes.append(route)
        self.layers.add_middleware(BodyLimitMiddleware, limits=self.bodies)
        self.layers.add_middleware(BoundaryMiddleware)
        self.layers.add_middleware(AccessLogMiddleware, log=log)
        self.layers.add_middleware(RequestIdMiddleware)
        self.door = PromptDoor(self.layers, [route], self.bodies, log)

    async def ask(self, app: FastAPI | PromptDoor, body: bytes) -> httpx.Response:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://t") as http:
            return await http.post(PATH, content=body)


@pytest.fixture
def both() -> Both:
    return Both()


@pytest.mark.parametrize(
    ("body", "status"),
    [(b"hello", 200), (b"missing", 404), (b"defect", 500), (b"x" * (LIMIT + 1), 413)],
)
async def test_it_answers_as_the_layers_do(both: Both, body: bytes, status: int) -> None:
    replies = [await both.ask(app, body) for app in (both.layers, both.door)]
    for reply in replies:
        assert reply.status_code == status
        assert reply.headers.pop("x-request-id").startswith("req_")
        assert reply.headers.pop("openai-processing-ms").isdigit()
        assert b"hunter2" not in reply.content
    assert replies[0].content == replies[1].content
    assert replies[0].headers == replies[1].headers
    assert both.bodies.held_bytes == 0


async def test_both_are_counted_and_logged(both: Both, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "gateway.access")
    for app in (both.layers, both.door):
        await both.ask(app, b"missing")
    await asyncio.sleep(0.1)
    lines = [record.__dict__["fields"] for record in caplog.records if record.msg == "request"]
    same = [{k: v for k, v in line.items() if k not in ("request_id", "took_ms")} for line in lines]
    assert same == [{"key_id": None, "method": "POST", "path": PATH, "status": 404}] * 2
    counted = both.metrics.http_requests.labels("POST", "/chat/completions", "404")
    assert counted._value.get() == 2


async def test_what_breaks_in_the_middle_is_cut_off(both: Both) -> None:
    sent: list[Message] = []
    with pytest.raises(RuntimeError, match="in the middle"):
        await serve(both.door, b"late", sent)
    assert [one["type"] for one in sent] == ["http.response.start", "http.response.body"]


async def test_a_caller_who_left_is_not_answered(both: Both) -> None:
    sent: list[Message] = []
    await serve(both.door, None, sent)
    assert sent == []
    assert both.bodies.held_bytes == 0


@pytest.mark.parametrize(
    ("change", "is_for"),
    [
        ({}, True),
        ({"method": "GET"}, False),
        ({"path": f"{PATH}/"}, False),
        ({"path": "/v1/models"}, False),
        ({"headers": [(b"origin", b"https://elsewhere.example")]}, False),
        ({"type": "lifespan"}, False),
    ],
)
def test_it_is_for_plain_posts(both: Both, change: dict[str, object], is_for: bool) -> None:
    assert both.door.is_for({**scope_of(), **change}) is is_for


def scope_of() -> Scope:
    return {
        "type": "http", "method": "POST", "path": PATH, "root_path": "", "headers": [],
        "query_string": b"", "state": {},
    }  # fmt: skip


async def serve(door: PromptDoor, body: bytes | None, sent: list[Message]) -> None:
    """One request; without a body its caller has left."""

    async def receive() -> Message:
        if body is None:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": body}

    async def send(message: Message) -> None:
        sent.append(message)

    await door(scope_of(), receive, send)
