"""Chunks of a known shape become what parsing them would make of them, byte for byte."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.chunks import ChunkWriter, StreamHead, TextShape

TEXTS = st.one_of(
    st.text(max_size=8),
    st.sampled_from(
        ['"', "\\", '","usage":', '"},"logprobs":null', '"content":"x"', "é", "\n", ""]
    ),
)


def event(text: Any, num: int, *, chat: bool = True, created: int = 1, **more: Any) -> bytes:
    said = {"delta": {"reasoning_content": None, "content": text}} if chat else {"text": text}
    choice = {"index": 0, **said, "logprobs": None, "finish_reason": None, **more}
    usage = {"prompt_tokens": 3, "completion_tokens": num, "prompt_tokens_details": None}
    return orjson.dumps({"id": "e", "created": created, "choices": [choice], "usage": usage})


def writer(*, chat: bool) -> ChunkWriter:
    head = StreamHead(chat=chat, public_id="id", created=9, model="m", include_usage=False)
    return ChunkWriter(head, 0)


@given(texts=st.lists(TEXTS, max_size=12), chat=st.booleans(), odd=st.integers(0, 12))
def test_the_same_as_parsed(texts: list[str], chat: bool, odd: int) -> None:
    """A writer that has learned beside one whose shape is forgotten before each event."""
    fast, slow = writer(chat=chat), writer(chat=chat)
    for place, text in enumerate(texts):
        one = event(text, place + 1, chat=chat, created=1 + (place >= odd))
        slow._shape = TextShape("content" if chat else "text")
        assert fast.feed(one) == slow.feed(one)
        if place % 5 == 4:
            assert fast.usage == slow.usage
    assert fast.usage == slow.usage
    last = event("", 99, chat=chat, finish_reason="stop")
    assert fast.feed(last) == slow.feed(last)
    assert fast.usage == slow.usage
    assert fast.usage.completion_tokens == 99
    assert fast.feed(event("late", 100, chat=chat)) == b""


def learned() -> TextShape:
    shape = TextShape("content")
    shape.learn(event("one", 1), "one")
    return shape


def test_a_text_of_the_same_shape_is_cut_out() -> None:
    shape = learned()
    assert shape.text_of(event(" two é", 2)) == '" two é"'.encode()
    assert shape.text_of(event("", 3)) == b""
    assert shape.take_usage() == {
        "prompt_tokens": 3, "completion_tokens": 3, "prompt_tokens_details": None,
    }  # fmt: skip
    assert shape.take_usage() is None


@pytest.mark.parametrize(
    "other",
    [
        event('say "x"', 2),
        event("a\\b", 2),
        event(None, 2),
        event(["part"], 2),
        event("two", 2, created=2),
        event("two", 2, logprobs={"content": []}),
        event("two", 2, finish_reason="stop"),
        orjson.dumps({"error": {"message": "no"}}),
        event("two", 2)[:60],
        b"",
    ],
)
def test_every_other_event_is_left_to_be_parsed(other: bytes) -> None:
    assert learned().text_of(other) is None


def test_an_event_without_usage_teaches_nothing() -> None:
    shape = TextShape("content")
    plain = b'{"choices":[{"delta":{"content":"one"}}]}'
    shape.learn(plain, "one")
    assert shape.text_of(plain) is None


def test_usage_that_cannot_be_read_is_none() -> None:
    shape = learned()
    assert shape.text_of(event("two", 2)[:-3]) == b'"two"'
    assert shape.take_usage() is None
