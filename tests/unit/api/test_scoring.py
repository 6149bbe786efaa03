"""Prompts that are scored: the one token an engine must make is not part of the reply."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from api.completion_request import check_completion
from api.errors import InvalidRequest
from engine_adapter.client.base import COMPLETIONS_PATH, EngineCall, RequestClass
from engine_adapter.client.decoding import decode_reply
from engine_adapter.client.encoding import engine_body
from engine_adapter.client.rid import new_rid

BODY: dict[str, Any] = {
    "model": "m", "prompt": "a b", "max_tokens": 0, "echo": True, "logprobs": 0,
}  # fmt: skip


@pytest.mark.contract("E-09")
def test_the_made_token_is_taken_off() -> None:
    check_completion(BODY)
    call = EngineCall(COMPLETIONS_PATH, BODY, new_rid(), RequestClass.ONLINE)
    sent = engine_body(call, stream=False)
    assert (sent["max_tokens"], sent["logprobs"]) == (1, 1)
    logprobs = {
        "tokens": ["a", " b", " c"],
        "token_logprobs": [None, -1.0, -2.0],
        "top_logprobs": [None, {" b": -1.0}, {" c": -2.0}],
        "text_offset": [-1, -1, -1],
    }
    choice = {"index": 0, "text": "a b c", "logprobs": logprobs, "finish_reason": "stop"}
    usage = {"prompt_tokens": 2, "completion_tokens": 1}
    answer = {"choices": [choice], "usage": usage, "created": 1}
    reply = decode_reply(call, 200, orjson.dumps(answer))
    (made,) = reply.body["choices"]
    assert (made["text"], made["finish_reason"]) == ("a b", "length")
    assert made["logprobs"]["token_logprobs"] == [None, -1.0]
    assert made["logprobs"]["text_offset"] == [0, 1]
    assert made["logprobs"]["top_logprobs"] == [None, {" b": -1.0}]
    assert reply.body["usage"]["completion_tokens"] == 0


@pytest.mark.contract("E-09")
@pytest.mark.parametrize("wrong", [{"echo": False}, {"logprobs": None}, {"stream": True}])
def test_no_tokens_without_a_score_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        check_completion({**BODY, **wrong})
