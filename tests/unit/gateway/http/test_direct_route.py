from __future__ import annotations

import httpx
import pytest
from fastapi import FastAPI, Request
from starlette.responses import Response

from api.errors import NotFound
from gateway.http.direct_route import DirectRoute
from gateway.http.error_handlers import install_error_handlers


async def echo(request: Request) -> Response:
    """Answer what was asked."""
    body = await request.body()
    if body == b"missing":
        raise NotFound("It is not there.")
    return Response(request.path_params["name"].encode() + b" " + body)


@pytest.fixture
def app() -> FastAPI:
    app = FastAPI()
    install_error_handlers(app)
    app.router.routes.append(DirectRoute("/echo/{name}", echo, methods=["POST"]))
    return app


@pytest.fixture
def http(app: FastAPI) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://gateway.test")


async def test_the_endpoint_gets_the_request(http: httpx.AsyncClient) -> None:
    reply = await http.post("/echo/a", content=b"hi")
    assert (reply.status_code, reply.content) == (200, b"a hi")


async def test_errors_and_wrong_methods_leave_in_the_envelope(http: httpx.AsyncClient) -> None:
    missing = await http.post("/echo/a", content=b"missing")
    assert missing.status_code == 404
    assert missing.json()["error"]["message"] == "It is not there."
    refused = await http.get("/echo/a")
    assert refused.status_code == 405
    assert refused.headers["allow"] == "POST"
    assert list(refused.json()["error"]) == ["message", "type", "param", "code"]


def test_it_is_described(app: FastAPI) -> None:
    assert app.openapi()["paths"]["/echo/{name}"]["post"]["summary"] == "Echo"
