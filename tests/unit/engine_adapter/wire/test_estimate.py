from __future__ import annotations

from typing import Any

import pytest

from engine_adapter.wire.estimate import (
    MESSAGE_TOKENS,
    UNBOUNDED_ANSWER_TOKENS,
    answer_tokens,
    prompt_tokens,
)


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
    assert prompt_tokens(body) == tokens


def test_tools_count() -> None:
    body = {"messages": [{"role": "user", "content": "a"}]}
    tool = {"type": "function", "function": {"name": "f", "description": "d" * 400}}
    assert prompt_tokens({**body, "tools": [tool]}) >= prompt_tokens(body) + 100


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
    assert answer_tokens(body) == tokens
