from __future__ import annotations

import logging
from collections.abc import AsyncIterator

import httpx
import pytest
from fastapi import Query
from pydantic import BaseModel
from sqlalchemy.exc import OperationalError

from gateway.http.access_log import AccessLog
from gateway.http.app import Gateway
from gateway.http.body_limit import BodyLimits
from gateway.http.error_handlers import install_error_handlers
from gateway.http.json_route import JsonRoute
from gateway.observability.metrics import Metrics


class Thing(BaseModel):
    name: str
    size: int


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    app = Gateway(BodyLimits(1000, 1000, ()), AccessLog(Metrics()))
    install_error_handlers(app)
    app.router.route_class = JsonRoute

    @app.post("/things")
    async def make(thing: Thing, limit: int = Query(1, le=9)) -> str:
        return f"{thing.name}{limit}"

    @app.get("/broken")
    async def broken() -> str:
        raise RuntimeError("the password is hunter2")

    @app.get("/no-database")
    async def no_database() -> str:
        raise OperationalError("SELECT secret", {}, Exception("host db.internal"))

    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://t") as made:
        yield made


def error_of(reply: httpx.Response) -> dict[str, str | None]:
    assert reply.headers["content-type"] == "application/json"
    assert reply.headers["x-request-id"].startswith("req_")
    body = reply.json()
    assert list(body) == ["error"]
    assert list(body["error"]) == ["message", "type", "param", "code"]
    error: dict[str, str | None] = body["error"]
    return error


async def test_unknown_routes_and_methods(client: httpx.AsyncClient) -> None:
    unknown = await client.get("/nope")
    assert (unknown.status_code, error_of(unknown)["code"]) == (404, "unknown_url")
    wrong = await client.put("/things")
    assert (wrong.status_code, error_of(wrong)["code"]) == (405, "method_not_allowed")


@pytest.mark.parametrize(
    ("kwargs", "param", "code"),
    [
        ({"json": {"size": 1}}, "name", "missing_required_parameter"),
        ({"json": {"name": "secret", "size": "secret"}}, "size", "invalid_type"),
        ({"json": {"name": "a", "size": 1}, "params": {"limit": "10"}}, "limit", "invalid_value"),
        ({"content": b"{", "headers": {"content-type": "application/json"}}, None, "invalid_json"),
    ],
)
async def test_validation_is_400_with_the_fields_name(
    client: httpx.AsyncClient, kwargs: dict[str, object], param: str | None, code: str
) -> None:
    reply = await client.post("/things", **kwargs)  # type: ignore[arg-type]
    assert reply.status_code == 400
    error = error_of(reply)
    assert (error["param"], error["code"]) == (param, code)
    assert "secret" not in str(error["message"])


async def test_a_defect_says_nothing_but_that(
    client: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR):
        reply = await client.get("/broken")
    assert reply.status_code == 500
    assert "hunter2" not in reply.text
    assert reply.headers["x-request-id"] in caplog.text
    assert "hunter2" in caplog.text


async def test_a_lost_database_is_503(client: httpx.AsyncClient) -> None:
    reply = await client.get("/no-database")
    assert (reply.status_code, error_of(reply)["code"]) == (503, "database_unavailable")
    assert reply.headers["retry-after"]
    assert "SELECT" not in reply.text
