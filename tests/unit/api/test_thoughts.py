"""Thoughts in a history, under every name that clients send."""

from __future__ import annotations

from typing import Any

import pytest

from api.chat_request import check_chat
from api.errors import InvalidRequest
from api.mapped_fields import mapped

CHAT = "/v1/chat/completions"
BLOCKS = [
    {"type": "thinking", "thinking": "I look", "signature": "s"},
    {"type": "thinking", "thinking": " it up."},
]
DETAILS = [
    {"type": "reasoning.text", "text": "I look", "format": "x", "index": 0, "signature": None},
    {"type": "reasoning.summary", "summary": " it up.", "id": "r"},
]


def body(**said: Any) -> dict[str, Any]:
    question = {"role": "user", "content": "hi"}
    return {"model": "m", "messages": [question, {"role": "assistant", "content": "yes", **said}]}


@pytest.mark.parametrize(
    "said",
    [
        {"thinking": "I look it up."},
        {"thinking": {"content": "I look it up.", "signature": "s"}},
        {"reasoning": "I look it up."},
        {"thinking_blocks": BLOCKS},
        {"reasoning_details": DETAILS},
        {"reasoning_content": "I look it up."},
        {"reasoning_content": "I look it up.", "thinking_blocks": BLOCKS},
        {"reasoning": "I look it up.", "reasoning_details": DETAILS, "thinking": None},
    ],
)
def test_each_name_is_one_thought(said: dict[str, Any]) -> None:
    made = mapped(CHAT, body(**said))
    assert made == body(reasoning_content="I look it up.")
    check_chat(made)


def test_a_name_that_says_nothing_is_none() -> None:
    empty: dict[str, Any] = {
        "thinking": None,
        "thinking_blocks": [],
        "reasoning": "",
        "reasoning_details": None,
    }
    made = mapped(CHAT, body(**empty))
    assert made == body()


@pytest.mark.parametrize(
    ("said", "param"),
    [
        ({"thinking": 1}, "thinking"),
        ({"thinking": {"text": "x"}}, "thinking.content"),
        ({"reasoning": {"text": "x"}}, "reasoning"),
        ({"thinking_blocks": "x"}, "thinking_blocks"),
        ({"thinking_blocks": ["x"]}, "thinking_blocks[0]"),
        ({"thinking_blocks": [{"type": "redacted_thinking"}]}, "thinking_blocks[0].type"),
        ({"thinking_blocks": [{"type": ["thinking"]}]}, "thinking_blocks[0].type"),
        ({"reasoning_details": [{"type": "reasoning.encrypted"}]}, "reasoning_details[0].type"),
        ({"reasoning_content": "a", "thinking": "b"}, "thinking"),
        ({"reasoning": "a", "thinking_blocks": BLOCKS}, "thinking_blocks"),
    ],
)
def test_what_cannot_be_read_is_refused_by_its_path(said: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        check_chat(mapped(CHAT, body(**said)))
    assert caught.value.param == f"messages[1].{param}"


@pytest.mark.parametrize("role", ["user", "system", "tool"])
def test_nobody_else_thinks(role: str) -> None:
    message = {"role": role, "content": "x", "thinking": "y"}
    with pytest.raises(InvalidRequest) as caught:
        check_chat(mapped(CHAT, {"model": "m", "messages": [message]}))
    assert caught.value.param == "messages[0].thinking"


def test_messages_that_are_none_are_left_for_the_checks() -> None:
    for messages in (None, "x", [], [1], [{"role": "assistant"}]):
        given = {"model": "m", "messages": messages}
        assert mapped(CHAT, given) is given
