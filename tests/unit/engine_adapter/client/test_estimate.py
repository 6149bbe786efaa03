from __future__ import annotations

from typing import Any

import pytest

from engine_adapter.client.base import CHAT_PATH, COMPLETIONS_PATH, EMBEDDINGS_PATH
from engine_adapter.client.estimate import (
    MESSAGE_TOKENS,
    UNBOUNDED_ANSWER_TOKENS,
    answer_tokens,
    prompt_tokens,
)

PATHS = {"messages": CHAT_PATH, "prompt": COMPLETIONS_PATH, "input": EMBEDDINGS_PATH}


def path_of(body: dict[str, Any]) -> str:
    return next(path for name, path in PATHS.items() if name in body)


@pytest.mark.parametrize(
    ("body", "tokens"),
    [
        ({"prompt": "a" * 40}, 10),
        ({"prompt": "a"}, 1),
        ({"prompt": "日本語です"}, 3),
        ({"prompt": ["a" * 40, "b" * 8]}, 12),
        ({"prompt": [1, 2, 3]}, 3),
        ({"prompt": [[1, 2, 3], [4]]}, 4),
        ({"input": ["a" * 4, "b"]}, 2),
        ({"messages": [{"role": "user", "content": "a" * 40}]}, 10 + MESSAGE_TOKENS),
        ({"messages": [{"role": "assistant", "content": None}]}, MESSAGE_TOKENS),
        (
            {"messages": [{"role": "user", "content": [{"type": "text", "text": "a" * 8}] * 2}]},
            4 + MESSAGE_TOKENS,
        ),
    ],
)
def test_prompts_of_every_shape(body: dict[str, Any], tokens: int) -> None:
    assert prompt_tokens(path_of(body), body) == tokens


def test_unchecked_fields_of_other_endpoints_are_not_looked_at() -> None:
    odd = {"messages": 1e308, "prompt": 7.5, "input": None}
    assert prompt_tokens(COMPLETIONS_PATH, {**odd, "prompt": "a"}) == 1
    assert prompt_tokens(EMBEDDINGS_PATH, {**odd, "input": "a"}) == 1
    assert prompt_tokens(CHAT_PATH, {**odd, "messages": []}) == 0
    assert answer_tokens(COMPLETIONS_PATH, {"max_tokens": 3, "max_completion_tokens": "x"}) == 3
    assert answer_tokens(EMBEDDINGS_PATH, {"max_tokens": "x"}) == 0


def test_tools_count() -> None:
    body = {"messages": [{"role": "user", "content": "a"}]}
    tool = {"type": "function", "function": {"name": "f", "description": "d" * 400}}
    with_tool = {**body, "tools": [tool]}
    assert prompt_tokens(CHAT_PATH, with_tool) >= prompt_tokens(CHAT_PATH, body) + 100


@pytest.mark.parametrize(
    ("body", "tokens"),
    [
        ({"messages": [], "max_completion_tokens": 5, "max_tokens": 9}, 5),
        ({"messages": [], "max_tokens": 9}, 9),
        ({"messages": []}, UNBOUNDED_ANSWER_TOKENS),
        ({"prompt": "a"}, 16),
        ({"input": "a"}, 0),
    ],
)
def test_answers(body: dict[str, Any], tokens: int) -> None:
    assert answer_tokens(path_of(body), body) == tokens
