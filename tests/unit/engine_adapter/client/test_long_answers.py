"""A long answer reads as any other, in many short calls of the parser."""

from __future__ import annotations

import sys
import threading
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine_adapter.client.long_answers import BRIEF_BYTES, aside, loaded

WORDS = st.sampled_from(
    ["a", '"', "},{", "}]},{", "]}]", "\\", '"top_logprobs":[{', "\u2028", "[{"]
)


def token(word: str, num_others: int, order: int) -> dict[str, Any]:
    told = {"token": word, "logprob": -0.5, "bytes": [*word.encode()]}
    if order:
        told = dict(reversed(told.items()))
    return {**told, "top_logprobs": [told] * num_others}


def answer(logprobs: Any) -> dict[str, Any]:
    choice = {"index": 0, "message": {"content": 'say "logprobs":{"content":[ twice'}}
    usage = {"prompt_tokens": 1, "completion_tokens": 2}
    return {"choices": [{**choice, "logprobs": logprobs, "finish_reason": "stop"}], "usage": usage}


def chat(words: list[str], num_others: int, order: int = 0) -> bytes:
    times = 1 + BRIEF_BYTES // (len(words) * (1 + num_others) * 40)
    tokens = [token(word, num_others, order) for word in words] * times
    return orjson.dumps(answer({"content": tokens}))


@settings(max_examples=60, deadline=None)
@given(st.lists(WORDS, min_size=1, max_size=9), st.sampled_from([0, 1, 5, 20]), st.integers(0, 1))
def test_tokens_of_a_chat(words: list[str], num_others: int, order: int) -> None:
    raw = chat(words, num_others, order)
    assert len(raw) > BRIEF_BYTES
    assert loaded(raw) == orjson.loads(raw)


@settings(max_examples=30, deadline=None)
@given(st.lists(WORDS, min_size=1, max_size=9))
def test_tokens_of_a_completion(words: list[str]) -> None:
    many = words * (1 + BRIEF_BYTES // (20 * len(words)))
    told = {"tokens": many, "token_logprobs": [-1.0] * len(many)}
    raw = orjson.dumps(answer({**told, "top_logprobs": [{word: -1.0} for word in many]}))
    assert loaded(raw) == orjson.loads(raw)
    raw = orjson.dumps(answer({**told, "top_logprobs": [{word: -1.0} for word in many] + [None]}))
    assert loaded(raw) == orjson.loads(raw)


@pytest.mark.parametrize(
    "body",
    [
        {"data": [{"embedding": [0.5] * BRIEF_BYTES}]},
        answer(None) | {"text": "x" * BRIEF_BYTES},
        answer({"refusal": None, "content": [token("a", 20, 0)] * 100}),
        answer({"content": []}) | {"more": [token("a", 20, 0)] * 100},
        {"choices": [], "logprobs": {"content": [token("a", 20, 0)] * 100}},
        {"choices": [{"logprobs": {"content": [1] * BRIEF_BYTES}}]},
    ],
    ids=["embedding", "text", "another order", "elsewhere", "nowhere", "no objects"],
)
def test_what_has_no_such_list_where_it_belongs_is_read_whole(body: Any) -> None:
    raw = orjson.dumps(body)
    assert loaded(raw) == body


def test_what_is_no_json_is_refused() -> None:
    raw = chat(["a"], 20)
    for broken in (raw[:-1], raw[: len(raw) // 2], raw.replace(b"-0.5", b"-0,5")):
        with pytest.raises(orjson.JSONDecodeError):
            loaded(broken)


def test_no_call_of_the_parser_is_long() -> None:
    num_calls = 0

    def note(_: Any, event: str, argument: Any) -> None:
        nonlocal num_calls
        num_calls += event == "c_call" and argument.__name__ == "loads"

    raw = chat(["a"] * 2000, 20)
    sys.setprofile(note)
    try:
        loaded(raw)
    finally:
        sys.setprofile(None)
    assert num_calls > len(raw) / BRIEF_BYTES


async def test_a_long_answer_is_read_beside_the_loop() -> None:
    assert await aside(threading.get_ident, is_long=False) == threading.get_ident()
    assert await aside(threading.get_ident, is_long=True) != threading.get_ident()
