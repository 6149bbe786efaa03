from __future__ import annotations

from typing import Any

import orjson
import pytest

from api.chunks import ChunkWriter, StreamFailed, StreamHead, error_event
from api.errors import InternalError
from api.usage import TokenUsage

USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5, "reasoning_tokens": 0}


def head(*, chat: bool = True, include_usage: bool = False, tier: str | None = None) -> StreamHead:
    return StreamHead(
        chat=chat,
        public_id="chatcmpl-1",
        created=9,
        model="m",
        include_usage=include_usage,
        service_tier=tier,
    )


def chat_event(
    delta: dict[str, Any] | None = None, finish: str | None = None, **more: Any
) -> bytes:
    choice = {
        "index": 0, "delta": delta or {"reasoning_content": None}, "logprobs": None,
        "finish_reason": finish, "matched_stop": None,
    } | more  # fmt: skip
    return orjson.dumps({"id": "e", "model": "x", "choices": [choice], "usage": USAGE})


def text_event(text: str, finish: str | None = None) -> bytes:
    choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": finish}
    return orjson.dumps({"id": "e", "choices": [choice]})


def parse(data: bytes) -> list[dict[str, Any]]:
    events = data.split(b"\n\n")
    assert events.pop() == b""
    assert all(event.startswith(b"data: ") and b"\n" not in event for event in events)
    return [orjson.loads(event[6:]) for event in events]


def test_a_chat_stream_role_first_then_text_then_one_finish() -> None:
    writer = ChunkWriter(head(), 0)
    out = b"".join(
        writer.feed(event)
        for event in (
            chat_event({"role": "assistant", "content": ""}),
            chat_event({"reasoning_content": None, "content": "Bonjour"}),
            chat_event({"reasoning_content": None, "content": ' "é"\n\U0001f600'}),
            chat_event(finish="stop", matched_stop=2),
            chat_event({"content": "never seen"}),
            orjson.dumps({"id": "e", "choices": [], "usage": USAGE}),
        )
    )
    chunks = parse(out)
    assert [chunk["choices"][0]["delta"] for chunk in chunks] == [
        {"role": "assistant", "content": "", "refusal": None},
        {"content": "Bonjour"},
        {"content": ' "é"\n\U0001f600'},
        {},
    ]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None, None, None, "stop"]
    for chunk in chunks:
        assert set(chunk) == {"id", "object", "created", "model", "choices"}
        assert (chunk["id"], chunk["object"]) == ("chatcmpl-1", "chat.completion.chunk")
        assert set(chunk["choices"][0]) == {"index", "delta", "logprobs", "finish_reason"}
    assert writer.finished
    assert writer.usage == TokenUsage(3, 2)


def test_usage_is_null_in_every_chunk_and_a_number_in_the_last_if_asked_for() -> None:
    shared = head(include_usage=True)
    writer = ChunkWriter(shared, 0)
    out = writer.feed(chat_event({"content": "a"})) + writer.feed(chat_event(finish="length"))
    chunks = parse(out + shared.usage_chunk(writer.usage))
    assert [chunk["usage"] for chunk in chunks[:-1]] == [None] * 3
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["total_tokens"] == 5


def test_a_role_chunk_precedes_text_even_if_the_engine_sends_none() -> None:
    chunks = parse(ChunkWriter(head(), 2).feed(chat_event({"content": "a"})))
    assert [chunk["choices"][0]["delta"].get("role") for chunk in chunks] == ["assistant", None]
    assert {chunk["choices"][0]["index"] for chunk in chunks} == {2}


@pytest.mark.contract("S-12", "S-14")
def test_tool_calls_reasoning_and_log_probabilities() -> None:
    writer = ChunkWriter(head(), 0)
    call = {"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": ""}}
    out = writer.feed(chat_event({"content": None, "tool_calls": [{**call, "x": None}]}))
    out += writer.feed(chat_event({"reasoning_content": "hm"}))
    out += writer.feed(chat_event({"content": "a"}, logprobs={"content": []}))
    _, tools, reasoning, logged = (chunk["choices"][0] for chunk in parse(out))
    assert tools["delta"] == {"tool_calls": [call]}
    assert reasoning["delta"] == {"reasoning_content": "hm"}
    assert logged["logprobs"] == {"content": [], "refusal": None}
    assert logged["delta"] == {"content": "a"}


def test_thoughts_under_vllms_name_are_ours() -> None:
    writer = ChunkWriter(head(), 0)
    writer.feed(chat_event({"role": "assistant", "content": ""}))
    (chunk,) = parse(writer.feed(chat_event({"reasoning": "hm"})))
    assert chunk["choices"][0]["delta"] == {"reasoning_content": "hm"}


def test_a_completion_stream() -> None:
    writer = ChunkWriter(head(chat=False), 1)
    chunks = parse(writer.feed(text_event("a")) + writer.feed(text_event("b", "length")))
    assert [chunk["choices"][0] for chunk in chunks] == [
        {"index": 1, "text": "a", "logprobs": None, "finish_reason": None},
        {"index": 1, "text": "b", "logprobs": None, "finish_reason": "length"},
    ]
    assert chunks[0]["object"] == "text_completion"
    assert writer.feed(text_event("late")) == b""


@pytest.mark.contract("S-14")
def test_a_token_without_text_has_its_log_probability_beside_no_text() -> None:
    part = {"token": "\ufffd", "logprob": -1.0, "bytes": [240], "top_logprobs": []}
    writer = ChunkWriter(head(), 0)
    _, logged = parse(writer.feed(chat_event({"content": ""}, logprobs={"content": [part]})))
    assert logged["choices"][0]["delta"] == {"content": ""}
    assert logged["choices"][0]["logprobs"]["content"] == [part]


@pytest.mark.contract("L-06")
def test_only_the_sampled_tokens_are_listed_in_chunks_too() -> None:
    head = StreamHead(
        chat=False, public_id="i", created=1, model="m", include_usage=False, only_sampled=True
    )
    listed = {"token_logprobs": [-2.0], "tokens": ["a"], "top_logprobs": [{"b": -0.1}]}
    choice = {"index": 0, "text": "a", "logprobs": listed, "finish_reason": "length"}
    (chunk,) = parse(ChunkWriter(head, 0).feed(orjson.dumps({"choices": [choice]})))
    assert chunk["choices"][0]["logprobs"]["top_logprobs"] == [{"a": -2.0}]


@pytest.mark.contract("L-06")
def test_offsets_go_on_from_chunk_to_chunk() -> None:
    writer = ChunkWriter(head(chat=False), 0)
    out = b""
    for text in ("one", " two", "!"):
        logprobs = {"text_offset": [-1], "token_logprobs": [-0.1], "tokens": [text]}
        choice = {"index": 0, "text": text, "logprobs": logprobs, "finish_reason": None}
        out += writer.feed(orjson.dumps({"choices": [choice]}))
    offsets = [chunk["choices"][0]["logprobs"]["text_offset"] for chunk in parse(out)]
    assert offsets == [[0], [3], [7]]


def test_the_tier_that_served_it_is_named_if_one_was_asked_for() -> None:
    (chunk, *_) = parse(ChunkWriter(head(tier="flex"), 0).feed(chat_event({"content": "a"})))
    assert chunk["service_tier"] == "flex"


def test_an_abort_is_an_error_and_not_a_finish() -> None:
    with pytest.raises(StreamFailed) as failed:
        ChunkWriter(head(), 0).feed(chat_event(finish="abort"))
    assert failed.value.error.code == "engine_unavailable"


def test_an_error_event_is_wrapped_again() -> None:
    flat = {"object": "error", "message": "boom", "type": "X", "param": None, "code": 500}
    with pytest.raises(StreamFailed) as failed:
        ChunkWriter(head(), 0).feed(orjson.dumps({"error": flat}))
    assert failed.value.error.code == "engine_error"
    assert "boom" not in failed.value.error.message


@pytest.mark.parametrize(
    "event",
    [
        b"{",
        b"[]",
        b"3",
        b'{"choices": 3}',
        b'{"choices": [3]}',
        b'{"choices": [{}]}',
        chat_event({"content": 3}),
        chat_event({"content": ["a"]}),
    ],
)
def test_nonsense_is_an_error(event: bytes) -> None:
    with pytest.raises(StreamFailed):
        ChunkWriter(head(), 0).feed(event)


def test_an_error_event_has_the_envelope() -> None:
    (event,) = parse(error_event(InternalError("oh")))
    assert list(event["error"]) == ["message", "type", "param", "code"]
