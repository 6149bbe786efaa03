"""The fake engine's answers: what a load test may order of it."""

from __future__ import annotations

import tracemalloc

from engine_adapter.client.base import CHAT_PATH
from tests.fakes.script import script_for


def test_a_long_answer_is_made_token_by_token() -> None:
    order = "fake:tokens=20000 fake:width=4000"
    body = {"messages": [{"role": "user", "content": order}]}
    tracemalloc.start()
    try:
        script = script_for(CHAT_PATH, body, 0.0)
        assert tracemalloc.get_traced_memory()[1] < 1024 * 1024
    finally:
        tracemalloc.stop()
    assert len(script.tokens) == 20_000
    assert [script.tokens[at].strip() for at in (0, -1)] == ["1", "20000"]
    assert {len(token) for token in script.tokens[1:9]} == {4001}
    assert len(script_for(CHAT_PATH, {**body, "max_tokens": 5}, 0.0).tokens) == 5
