from __future__ import annotations

from typing import Any

import pytest

from api.replies import EngineAborted, conforming_reply, usage_of
from api.usage import TokenUsage
from engine_adapter.client.base import CHAT_PATH, COMPLETIONS_PATH

RID = "0123456789abcdef" * 2


def chat(**choice: Any) -> dict[str, Any]:
    message = {
        "role": "assistant", "content": "hi", "reasoning_content": None, "tool_calls": None,
    }  # fmt: skip
    made = {
        "index": 7, "message": message, "logprobs": None, "finish_reason": "stop",
        "matched_stop": 2,
    }  # fmt: skip
    return {
        "id": "engine-id", "object": "chat.completion", "created": 5, "model": "/models/x",
        "choices": [{**made, **choice}], "metadata": {"weight_version": "default"},
        "usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7,
                  "prompt_tokens_details": {"cached_tokens": 2}, "reasoning_tokens": 1},
    }  # fmt: skip


def test_a_chat_reply_has_what_the_contract_says_and_nothing_of_the_engine() -> None:
    body, usage = conforming_reply(CHAT_PATH, RID, "the-model", chat())
    assert body == {
        "id": f"chatcmpl-{RID}",
        "object": "chat.completion",
        "created": 5,
        "model": "the-model",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "hi", "refusal": None},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": {
            "prompt_tokens": 3,
            "completion_tokens": 4,
            "total_tokens": 7,
            "prompt_tokens_details": {"cached_tokens": 2},
            "completion_tokens_details": {"reasoning_tokens": 1},
        },
    }
    assert usage == TokenUsage(3, 4, 2, 1)


@pytest.mark.contract("C-06")
def test_thoughts_under_vllms_name_are_ours() -> None:
    message = {"role": "assistant", "content": "hi", "reasoning": "hm"}
    body, _ = conforming_reply(CHAT_PATH, RID, "m", chat(message=message))
    assert body["choices"][0]["message"]["reasoning_content"] == "hm"


def test_tool_calls_have_no_content_and_no_nulls() -> None:
    call = {
        "id": "call_1", "index": 0, "type": "function",
        "function": {"name": "f", "arguments": "{}"}, "extra": None,
    }  # fmt: skip
    message = {"role": "assistant", "content": "", "tool_calls": [call]}
    body, _ = conforming_reply(
        CHAT_PATH, RID, "m", chat(message=message, finish_reason="tool_calls")
    )
    made = body["choices"][0]
    assert made["finish_reason"] == "tool_calls"
    assert made["message"]["content"] is None
    assert made["message"]["tool_calls"] == [
        {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    ]


@pytest.mark.contract("C-17")
def test_log_probabilities_have_both_keys() -> None:
    token = {"token": "a", "logprob": -1.0, "bytes": [97], "top_logprobs": []}
    body, _ = conforming_reply(CHAT_PATH, RID, "m", chat(logprobs={"content": [token]}))
    assert body["choices"][0]["logprobs"] == {"content": [token], "refusal": None}


def test_a_completion_reply() -> None:
    engine = {
        "id": "x", "created": 5,
        "choices": [{"index": 0, "text": "hi", "finish_reason": "length", "matched_stop": None}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1},
    }  # fmt: skip
    body, usage = conforming_reply(COMPLETIONS_PATH, RID, "m", engine, index=3)
    assert body["id"] == f"cmpl-{RID}"
    assert body["object"] == "text_completion"
    assert body["choices"] == [
        {"text": "hi", "index": 3, "logprobs": None, "finish_reason": "length"}
    ]
    assert usage.total_tokens == 2


@pytest.mark.contract("C-04")
def test_an_abort_never_leaves() -> None:
    with pytest.raises(EngineAborted):
        conforming_reply(CHAT_PATH, RID, "m", chat(finish_reason="abort"))


@pytest.mark.parametrize(("engine", "ours"), [("matched_stop", "stop"), (None, "stop")])
@pytest.mark.contract("C-04")
def test_unknown_finish_reasons_become_known_ones(engine: str | None, ours: str) -> None:
    body, _ = conforming_reply(CHAT_PATH, RID, "m", chat(finish_reason=engine))
    assert body["choices"][0]["finish_reason"] == ours


@pytest.mark.parametrize("usage", [None, {}, [], {"prompt_tokens": None}])
def test_missing_usage_is_zero(usage: Any) -> None:
    assert usage_of(usage) == TokenUsage()


@pytest.mark.parametrize("count", [10**30, 2**63, -1, 1e400, 7.5, "7", True, [7], {"a": 7}, None])
def test_what_is_no_count_of_tokens_counts_as_none(count: Any) -> None:
    """Usage is added up for all callers and written at once: a count must always fit."""
    usage = usage_of(
        {
            "prompt_tokens": count,
            "completion_tokens": 5,
            "reasoning_tokens": count,
            "prompt_tokens_details": {"cached_tokens": count},
        }
    )
    assert usage == TokenUsage(completion_tokens=5)
    for told in (count, [count], {"prompt_tokens_details": count}):
        assert usage_of(told) == TokenUsage()
