"""Any body gets an answer that is no server error, and the engine is never reached by garbage."""

from __future__ import annotations

import random
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.integration.gateway.conftest import MODEL, Online

NUM_BODIES = 1_500

FIELDS = (
    "model", "messages", "prompt", "n", "stop", "stream", "stream_options", "temperature", "top_p",
    "max_tokens", "max_completion_tokens", "logprobs", "top_logprobs", "logit_bias", "seed",
    "response_format", "tools", "tool_choice", "metadata", "service_tier", "user", "priority",
    "rid", "custom_params", "best_of", "suffix", "echo", "input_ids", "chat_template_kwargs",
)  # fmt: skip
ODD: tuple[Any, ...] = (
    None, True, 0, -1, 1, 2, 1 << 62, 1e308, -0.0, "", "x", "\0", "é😀", [], {}, [[]], [None],
    {"role": "user"}, {"type": "function"}, [{"role": "user", "content": "hi"}], {"a": {"b": []}},
    ["a"] * 9, [1, 2], "text", {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}},
)  # fmt: skip


CHAT_PATH = "/v1/chat/completions"


def some_body(source: random.Random, online: Online, path: str) -> dict[str, Any]:
    """Some lack what they need, or have what is the other path's; all have something odd."""
    body: dict[str, Any] = {}
    if source.random() < 0.9:
        own = path == CHAT_PATH if source.random() < 0.95 else path != CHAT_PATH
        chat = online.chat("fake:tokens=1")
        body |= chat if own else {"model": MODEL, "prompt": "hi", "max_tokens": 1}
    for name in source.sample(FIELDS, source.randint(1, 3)):
        body[name] = source.choice(ODD)
    return body


@pytest.mark.contract("T-28")
async def test_odd_bodies_are_never_a_server_error(online: Online) -> None:
    source = random.Random(20261121)
    seen: dict[int, int] = {}
    async with online.http() as http:
        for _ in range(NUM_BODIES):
            path = source.choice((CHAT_PATH, "/v1/completions"))
            body = some_body(source, online, path)
            reply = await http.post(
                path,
                content=orjson.dumps(body),
                headers={"content-type": "application/json"},
            )
            seen[reply.status_code] = seen.get(reply.status_code, 0) + 1
            assert reply.status_code in (200, 400, 404), (body, reply.text)
            if reply.status_code != 200:
                assert list(reply.json()["error"]) == ["message", "type", "param", "code"]
    assert seen[200] > 50, "the fuzz must also reach the engine"
    assert seen[400] > 500
    sent = online.engine.received
    assert all(len(body["rid"]) == 32 and body["priority"] in (0, -1) for body in sent)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(raw=st.binary(max_size=200))
@pytest.mark.contract("Z-06")
async def test_odd_bytes_are_bad_requests(online: Online, raw: bytes) -> None:
    async with online.http() as http:
        reply = await http.post(
            "/v1/chat/completions", content=raw, headers={"content-type": "application/json"}
        )
    assert reply.status_code == 400
