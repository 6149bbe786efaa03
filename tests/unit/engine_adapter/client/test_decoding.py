"""An answer that lacks a part fails its own request; what is no answer means a lost engine."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest

from api.errors import EngineUnavailable
from engine_adapter.client.base import (
    CHAT_PATH,
    COMPLETIONS_PATH,
    EMBEDDINGS_PATH,
    EngineCall,
    RequestClass,
)
from engine_adapter.client.decoding import decode_reply
from engine_adapter.client.rid import new_rid

SCORED = {"prompt": "x", "max_tokens": 0, "echo": True, "logprobs": 1}


def call(path: str, **more: Any) -> EngineCall:
    return EngineCall(path, {"model": "m", **more}, new_rid(), RequestClass.ONLINE)


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (call(CHAT_PATH), {"choices": [None]}),
        (call(CHAT_PATH), {"choices": [{"message": "x"}]}),
        (call(CHAT_PATH), {"choices": [{}]}),
        (call(CHAT_PATH), {"choices": [{"message": None, "finish_reason": "stop"}]}),
        (call(COMPLETIONS_PATH), {"choices": [{}]}),
        (call(COMPLETIONS_PATH), {"choices": [{"finish_reason": "stop"}]}),
        (call(COMPLETIONS_PATH, **SCORED), {"choices": [{"text": "x", "logprobs": None}]}),
        (
            call(COMPLETIONS_PATH, **SCORED),
            {"choices": [{"text": "x", "logprobs": {"tokens": []}}]},
        ),
        (call(EMBEDDINGS_PATH), {"data": [{}]}),
        (call(EMBEDDINGS_PATH, encoding_format="base64"), {"data": [{"embedding": [1e308]}]}),
        (call(CHAT_PATH), {"choices": [{"message": {"content": 3}}]}),
        (call(COMPLETIONS_PATH), {"choices": [{"text": ["a"]}]}),
    ],
)
def test_an_answer_that_lacks_a_part_fails_alone(asked: EngineCall, answer: Any) -> None:
    reply = decode_reply(asked, 200, orjson.dumps(answer))
    assert reply.status_code == 422
    assert reply.body["error"]["code"] == "engine_request_failed"
    assert reply.headers["x-should-retry"] == "false"
    assert not reply.retryable


@pytest.mark.parametrize("path", [CHAT_PATH, COMPLETIONS_PATH, EMBEDDINGS_PATH])
@pytest.mark.parametrize(
    "raw", [b"", b"<html>", b"null", b"[]", b"{}", b'{"choices": []}', b'{"data": {}}', b'"x"']
)
def test_what_is_no_answer_is_no_engine(path: str, raw: bytes) -> None:
    with pytest.raises(EngineUnavailable):
        decode_reply(call(path), 200, raw)


@pytest.mark.parametrize("created", [None, "x", "1e400", 1e308, 2**70, -1, True, [], {}])
def test_an_instant_that_is_none_is_left_out(created: Any) -> None:
    answer = {"choices": [{"message": {"content": "a"}}], "created": created}
    reply = decode_reply(call(CHAT_PATH), 200, json.dumps(answer).encode())
    assert reply.ok
    assert reply.body["created"] == 0
