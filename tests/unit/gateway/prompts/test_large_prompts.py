"""What a prompt costs the loop that all streams share, counted in calls and not in time."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from api.engine_messages import told
from api.errors import InvalidRequest
from api.numbers import ModelSizes
from engine_adapter.client.base import CHAT_PATH, COMPLETIONS_PATH
from engine_adapter.client.estimate import prompt_tokens, weigh
from engine_adapter.client.routing import prompt_of

PART = {"type": "text", "text": "a"}
LARGE: dict[str, list[dict[str, Any]]] = {
    "many messages": [{"role": "user", "content": "a" * 20}] * 20_000,
    "many parts": [{"role": "user", "content": [PART] * 20_000}],
    "an answer after each question": [
        {"role": role, "content": "a" * 20} for role in ("user", "assistant") * 10_000
    ],
}


def num_calls(work: Callable[[], object]) -> int:
    """Calls of Python and C functions that a piece of work makes."""
    num = 0

    def note(frame: object, event: str, argument: object) -> None:
        nonlocal num
        num += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return num


@pytest.mark.parametrize("messages", LARGE.values(), ids=list(LARGE))
def test_routing_does_not_look_at_each_message(messages: list[dict[str, Any]]) -> None:
    assert num_calls(lambda: prompt_of(CHAT_PATH, {"messages": messages})) < 5000


def test_a_plain_part_is_told_to_the_engine_as_it_is() -> None:
    (message,) = told([{"role": "user", "content": [PART, {**PART, "more": None}]}])
    first, second = message["content"]
    assert first is PART
    assert second == PART


@pytest.mark.parametrize("messages", LARGE.values(), ids=list(LARGE))
def test_an_estimate_makes_few_calls_a_message(messages: list[dict[str, Any]]) -> None:
    assert num_calls(lambda: prompt_tokens(CHAT_PATH, {"messages": messages})) < 10 * 20_000


def test_numbers_are_held_to_the_model_where_a_body_is_weighed() -> None:
    body = {"model": "m", "prompt": [7] * 1000 + [8]}
    with pytest.raises(InvalidRequest) as refused:
        weigh(COMPLETIONS_PATH, body, ModelSizes(8, 2000), is_large=True, is_routed=False)
    assert refused.value.param == "prompt[1000]"
