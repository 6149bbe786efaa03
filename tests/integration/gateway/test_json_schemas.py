"""What a grammar cannot hold of a schema is left out and named, or refused where it is strict."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.gateway.conftest import MODEL, Online

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer", "multipleOf": 5}}}
HELD = {"type": "object", "properties": {"a": {"type": "integer"}}}


def formats(strict: bool) -> list[tuple[str, dict[str, Any], str]]:
    named = {"name": "n", "schema": SCHEMA, "strict": strict}
    asked = {"response_format": {"type": "json_schema", "json_schema": named}}
    messages = [{"role": "user", "content": "hi"}]
    param = "response_format.json_schema.schema"
    return [
        ("/v1/chat/completions", {"messages": messages, **asked}, param),
        ("/v1/completions", {"prompt": "hi", **asked}, param),
        (
            "/v1/responses",
            {"input": "hi", "text": {"format": {"type": "json_schema", **named}}},
            "text.format.schema",
        ),
    ]


@pytest.mark.parametrize("stream", [False, True])
async def test_named_in_the_reply(online: Online, *, stream: bool) -> None:
    async with online.http() as http:
        for path, body, _ in formats(strict=False):
            reply = await http.post(path, json={"model": MODEL, "stream": stream, **body})
            assert reply.status_code == 200, reply.text
            assert reply.headers["x-not-held"] == "schema.properties.a.multipleOf"
            sent = online.engine.received[-1]["response_format"]["json_schema"]
            assert sent["schema"] == HELD


async def test_refused_where_it_is_strict(online: Online) -> None:
    async with online.http() as http:
        for path, body, param in formats(strict=True):
            reply = await http.post(path, json={"model": MODEL, **body})
            error = reply.json()["error"]
            assert reply.status_code == 400
            assert error["param"] == f"{param}.properties.a.multipleOf"
            assert error["code"] == "unsupported_parameter"


async def test_names_are_fit_for_a_header(online: Online) -> None:
    schema = {"type": "object", "properties": {"é\r\nx: y": {"multipleOf": 5}}}
    asked = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
    async with online.http() as http:
        body = online.chat("hi", response_format=asked)
        reply = await http.post("/v1/chat/completions", json=body)
    assert reply.headers["x-not-held"].startswith("schema.properties.%C3%A9%0D%0Ax%3A%20y")
