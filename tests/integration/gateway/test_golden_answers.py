"""Thirty calls and the bytes of their answers; only ids and times are replaced."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from gateway.settings import GatewaySettings
from store.session import Database
from tests.fakes.client import FakeEngine, FakeSettings
from tests.fakes.server import serving
from tests.fixtures.online import Gateway, running_gateway
from tests.fixtures.oracles import Oracle

MODEL, EMBEDDER = "fake-model", "fake-embedder"
CHAT, COMPLETIONS, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"
EMBEDDINGS = "/v1/embeddings"
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a place.",
        "parameters": {"type": "object", "properties": {"place": {"type": "string"}}},
    },
}
TOOL = {"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {}}}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}

_ID = re.compile(r"\b([a-z]+)[-_]([0-9A-Za-z]{20,})\b")
_TIME = re.compile(r'("(?:created|created_at|completed_at)": ?)\d+(?:\.\d+)?')


def chat(prompt: str, **more: Any) -> tuple[str, Any]:
    return CHAT, {"model": MODEL, "messages": [{"role": "user", "content": prompt}], **more}


def text(prompt: Any, **more: Any) -> tuple[str, Any]:
    return COMPLETIONS, {"model": MODEL, "prompt": prompt, **more}


def response(given: Any, **more: Any) -> tuple[str, Any]:
    return RESPONSES, {"model": MODEL, "input": given, "store": False, **more}


def embed(given: Any, **more: Any) -> tuple[str, Any]:
    return EMBEDDINGS, {"model": EMBEDDER, "input": given, **more}


USAGE = {"stream_options": {"include_usage": True}}
CALLS: dict[str, tuple[str, Any]] = {
    "chat": chat("fake:text=Paris_it_is"),
    "chat, streamed": chat("fake:text=Paris_it_is", stream=True),
    "chat, streamed with usage": chat("one two", stream=True, **USAGE),
    "chat, cut by its length": chat("hi", max_completion_tokens=3),
    "chat, two choices": chat("fake:tokens=2", n=2),
    "chat, two choices streamed": chat("fake:tokens=2", n=2, stream=True, **USAGE),
    "chat, log probabilities": chat("fake:tokens=2", logprobs=True, top_logprobs=2),
    "chat, a tool is called": chat("fake:call=weather", tools=[WEATHER]),
    "chat, a tool is called, streamed": chat("fake:call=weather", tools=[WEATHER], stream=True),
    "chat, a tool must be called": chat("hi", tools=[WEATHER], tool_choice="required"),
    "chat, a schema": chat(
        'fake:text={"a":1}',
        response_format={"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA}},
    ),
    "chat, flex": chat("hi", service_tier="flex", max_completion_tokens=2),
    "chat, unknown field": chat("hi", no_such_field=1),
    "chat, wrong type": chat("hi", temperature="warm"),
    "chat, unknown model": (CHAT, chat("hi")[1] | {"model": "other"}),
    "chat, no messages": (CHAT, {"model": MODEL, "messages": []}),
    "chat, too long": chat("word " * 3000),
    "chat, the engine fails": chat("fake:status=500"),
    "chat, the engine fails in a stream": chat("fake:fail_after=2 fake:token_ms=300", stream=True),
    "chat, no JSON": (CHAT, b'{"model": '),
    "completion": text("hi", max_tokens=3),
    "completion, streamed": text("hi", max_tokens=3, stream=True, **USAGE),
    "completion, two prompts": text(["a", "b c"], max_tokens=2),
    "response": response("fake:text=Paris"),
    "response, streamed": response("fake:text=Paris_it_is", stream=True),
    "response, a tool is called": response("fake:call=weather", tools=[TOOL]),
    "response, a tool is called, streamed": response(
        "fake:call=weather", tools=[TOOL], stream=True
    ),
    "response, wrong item": response([{"type": "no such item"}]),
    "embedding": embed("a text", dimensions=2, encoding_format="float"),
    "embedding, base64": embed(["a", "b"], dimensions=2, encoding_format="base64"),
    "embedding, of a text model": (EMBEDDINGS, {"model": MODEL, "input": "a"}),
    "models": ("/v1/models", None),
}


@pytest.fixture
async def both(
    database: Database, database_url: str, broker_url: str, tmp_path: Path
) -> AsyncIterator[Gateway]:
    """A gateway before an engine for texts and one for embeddings."""
    async with (
        serving(FakeEngine(FakeSettings(model=MODEL))) as texts,
        serving(FakeEngine(FakeSettings(model=EMBEDDER, embeds=True))) as embeddings,
    ):
        settings = GatewaySettings(
            database_url=database_url,
            broker_url=broker_url,
            engine_urls=f"{texts},{embeddings}",
            home=tmp_path,
        )
        async with running_gateway(database, settings, MODEL) as gateway:
            async with asyncio.timeout(30):
                while len(gateway.app.state.engines.models()) < 2:
                    await asyncio.sleep(0.01)
            yield gateway


def plain(raw: str) -> str:
    """With ids counted in the order in which they come, and without times."""
    known: dict[str, str] = {}

    def counted(found: re.Match[str]) -> str:
        return known.setdefault(found[0], f"{found[1]}-{len(known) + 1}")

    return _TIME.sub(r"\g<1>0", _ID.sub(counted, raw))


def _choice_of(event: str) -> int:
    found = re.search(r'"choices":\[\{"index":(\d+)', event)
    return int(found[1]) if found else 99


def told(reply: httpx.Response, body: Any) -> str:
    raw = reply.text
    if isinstance(body, dict) and body.get("stream") and body.get("n"):
        # Choices come as they are made: each of them is in order.
        raw = "\n\n".join(sorted(raw.strip().split("\n\n"), key=_choice_of))
    return f"{reply.status_code} {reply.headers['content-type']}\n{plain(raw).rstrip()}"


@pytest.mark.oracle
async def test_golden_answers(both: Gateway, oracle: Oracle) -> None:
    lines = []
    async with both.http() as http:
        for name, (path, body) in CALLS.items():
            if body is None:
                reply = await http.get(path)
            else:
                content = body if isinstance(body, bytes) else orjson.dumps(body)
                headers = {"content-type": "application/json"}
                reply = await http.post(path, content=content, headers=headers)
            lines += [f"### {name}", told(reply, body), ""]
    oracle("answers.txt", "\n".join(lines))
