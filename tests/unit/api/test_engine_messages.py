"""What earlier turns said is told to the model, in whichever form it came."""

from __future__ import annotations

from typing import Any

import pytest

from api.chat_request import check_chat
from api.engine_messages import told
from api.mapped_fields import mapped
from api.tool_prompt import with_tools

CALL = {"name": "f", "arguments": '{"a": 1}'}
MESSAGES: list[dict[str, Any]] = [
    {"role": "developer", "content": "x", "name": None},
    {"role": "user", "content": "x", "cache_control": {"type": "ephemeral"}},
    {"role": "assistant", "content": None, "function_call": CALL},
    {"role": "function", "name": "f", "content": "4 degrees"},
    {"role": "assistant", "content": None, "refusal": "I will not."},
    {"role": "assistant", "content": [{"type": "refusal", "refusal": "Nor that."}]},
    {"role": "user", "content": [{"type": "text", "text": "x", "cache_control": None}]},
]


def test_the_forms() -> None:
    body = mapped("/v1/chat/completions", {"model": "m", "messages": MESSAGES})
    check_chat(body)
    called = {"id": "call_2", "type": "function", "function": CALL}
    assert told(body["messages"]) == [
        {"role": "system", "content": "x"},
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": None, "tool_calls": [called]},
        {"role": "tool", "name": "f", "tool_call_id": "call_2", "content": "4 degrees"},
        {"role": "assistant", "content": "I will not."},
        {"role": "assistant", "content": [{"type": "text", "text": "Nor that."}]},
        {"role": "user", "content": [{"type": "text", "text": "x"}]},
    ]


def test_an_engine_without_a_parser_is_told_in_words() -> None:
    body = mapped("/v1/chat/completions", {"model": "m", "messages": MESSAGES})
    said = str(with_tools({"messages": told(body["messages"])}, parses=False))
    for words in ('{"name": "f", "arguments": {"a": 1}}', "4 degrees", "I will not.", "Nor that."):
        assert words in said


@pytest.mark.parametrize("content", ["x", [{"type": "text", "text": "x"}]])
def test_a_refusal_beside_a_text(content: Any) -> None:
    (made,) = told([{"role": "assistant", "content": content, "refusal": "no"}])
    assert "x" in str(made)
    assert "no" in str(made)


def test_what_is_plain_is_passed_on() -> None:
    plain = [{"role": "user", "content": "hi"}]
    assert told(plain)[0] is plain[0]


def test_the_closest_look_is_the_closest_that_engines_know() -> None:
    image = {"url": "data:image/png;base64,AA", "detail": "original"}
    part = {"type": "image_url", "image_url": image}
    (made,) = told([{"role": "user", "content": [part]}])
    assert made["content"][0]["image_url"]["detail"] == "high"
    assert image["detail"] == "original"
