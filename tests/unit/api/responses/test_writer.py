"""Events of a response out of an engine's stream, read by a strict state machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.chunks import StreamFailed
from api.errors import EngineUnavailable, InvalidRequest, Overloaded
from api.replies import chat_choice
from api.responses.events import retold
from api.responses.output import whole_response
from api.responses.resource import ResponseDraft
from api.responses.writer import ResponseWriter
from api.tool_calls import ToolOffer
from api.usage import TokenUsage
from tests.fixtures.response_events import EventReader, read_stream

RID = "0123456789abcdef" * 2
USAGE = {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12, "reasoning_tokens": 2}
Step = tuple[str, str]


def draft(**body: Any) -> ResponseDraft:
    return ResponseDraft({"model": "m", "input": "hi", **body}, RID, 1_700_000_000)


def chunk(delta: Mapping[str, Any], finish: str | None = None, logprobs: Any = None) -> bytes:
    choice = {"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": finish}
    return orjson.dumps({"choices": [choice], "usage": USAGE})


def call_delta(index: int, text: str, name: str | None = None) -> dict[str, Any]:
    named = None if name is None else f"call_{index}"
    function = {"name": name, "arguments": text}
    return {"tool_calls": [{"index": index, "id": named, "type": "function", "function": function}]}


def events_of(steps: list[Step], finish: str) -> list[bytes]:
    """A stream as SGLang sends it; a call's first step names it."""
    events = [chunk({"role": "assistant", "content": ""})]
    num_calls = 0
    for kind, text in steps:
        if kind == "call":
            events.append(chunk(call_delta(num_calls, "", f"f{num_calls}")))
            events += [chunk(call_delta(num_calls, piece)) for piece in text]
            num_calls += 1
        else:
            events += [chunk({kind: piece}) for piece in text]
    return [*events, chunk({}, finish)]


def told(steps: list[Step], finish: str, **body: Any) -> EventReader:
    writer = ResponseWriter(draft(**body), None)
    raw = b"".join(map(writer.feed, events_of(steps, finish)))
    assert writer.finished
    last, response = writer.end(1_700_000_001)
    reader = read_stream(raw + last)
    assert reader.finish() == response
    return reader


@pytest.mark.parametrize("finish", ["stop", "length", "tool_calls", "content_filter"])
@pytest.mark.parametrize(
    "steps",
    [
        [],
        [("content", "Paris.")],
        [("reasoning_content", "hm"), ("content", "Paris.")],
        [("call", '{"a": 1}')],
        [("content", "I look."), ("call", "{}"), ("call", '{"b": 2}')],
        [("reasoning_content", "hm"), ("call", "{}")],
    ],
)
def test_streamed_is_what_whole_is(steps: list[Step], finish: str) -> None:
    reader = told(steps, finish)
    message: dict[str, Any] = {
        kind: "".join(text for one, text in steps if one == kind)
        for kind in ("content", "reasoning_content")
    }
    calls = [text for kind, text in steps if kind == "call"]
    message["tool_calls"] = [
        {"id": f"call_{i}", "type": "function", "function": {"name": f"f{i}", "arguments": text}}
        for i, text in enumerate(calls)
    ]
    choice = chat_choice({"message": message, "finish_reason": finish}, 0)
    whole = whole_response(draft(), choice, TokenUsage(7, 5, 0, 2), 1_700_000_001)
    assert whole == reader.response
    assert whole["status"] == (
        "incomplete" if finish in ("length", "content_filter") else "completed"
    )
    assert whole["output"][-1]["status"] == whole["status"]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["content", "reasoning_content", "call"]),
            st.text(st.characters(codec="utf-8"), min_size=1, max_size=4),
        ),
        max_size=8,
    ),
    st.sampled_from(["stop", "length"]),
)
def test_any_order_of_kinds_is_a_legal_stream(steps: list[Step], finish: str) -> None:
    reader = told(steps, finish)
    output = reader.finish()["output"]
    kinds = {"message": "content", "reasoning": "reasoning_content", "function_call": "call"}
    for kind, step in kinds.items():
        text = "".join(
            item.get("arguments") or "".join(part["text"] for part in item.get("content") or ())
            for item in output
            if item["type"] == kind
        )
        assert text == "".join(one for name, one in steps if name == step)


def test_log_probabilities_come_with_their_text_if_they_are_wanted() -> None:
    top = [{"token": "a", "bytes": [97], "logprob": -0.5}]
    token = {"token": "a", "bytes": [97], "logprob": -0.5, "top_logprobs": top}
    for wanted, tokens in ((True, [token]), (False, [])):
        include = {"include": ["message.output_text.logprobs"]} if wanted else {}
        writer = ResponseWriter(draft(**include), None)
        raw = writer.feed(chunk({"content": "a"}, None, {"content": [token]}))
        raw += writer.feed(chunk({}, "stop"))
        last, response = writer.end(0)
        read_stream(raw + last)
        assert response["output"][0]["content"][0]["logprobs"] == tokens


def test_log_probabilities_of_tokens_without_text_are_kept() -> None:
    """Of parts of a character until it is whole, and of the end."""

    def token(*of: int) -> dict[str, Any]:
        return {"token": "x", "bytes": [*of], "logprob": -0.5, "top_logprobs": []}

    writer = ResponseWriter(draft(include=["message.output_text.logprobs"]), None)
    steps = [("", token(240, 159), None), ("\U0001f600", token(152, 128), None)]
    raw = b""
    for text, one, finish in [*steps, ("", token(3), "stop")]:
        raw += writer.feed(chunk({"content": text}, finish, {"content": [one]}))
    last, response = writer.end(1_700_000_001)
    read_stream(raw + last)
    (part,) = response["output"][0]["content"]
    assert part["text"] == "\U0001f600"
    assert [one["bytes"] for one in part["logprobs"]] == [[240, 159], [152, 128], [3]]


def test_forced_calls_of_an_engine_without_a_parser() -> None:
    writer = ResponseWriter(draft(), ToolOffer(forced="tool_calls"))
    text = '[{"name": "f", "parameters": {"a": 1}}, {"name": "g", "parameters": {}}]'
    raw = b"".join(writer.feed(chunk({"content": piece})) for piece in text)
    raw += writer.feed(chunk({}, "stop"))
    reader = read_stream(raw + writer.end(0)[0])
    made = [(item["name"], item["arguments"]) for item in reader.finish()["output"]]
    assert made == [("f", '{"a": 1}'), ("g", "{}")]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (EngineUnavailable("gone"), "server_error"),
        (InvalidRequest("no"), "invalid_prompt"),
        (Overloaded("full"), "server_error"),
    ],
)
@pytest.mark.parametrize("begun", [True, False])
def test_a_failure_is_the_last_event(error: Any, code: str, *, begun: bool) -> None:
    writer = ResponseWriter(draft(), None)
    raw = writer.feed(chunk({"content": "a"})) if begun else b""
    last, response = writer.fail(error)
    assert read_stream(raw + last).finish() == response
    assert (response["status"], response["error"]["code"]) == ("failed", code)


@pytest.mark.parametrize(
    "event",
    [
        b"{",
        b'{"choices": [{}]}',
        b'{"error": {"code": 500, "message": "x"}}',
        chunk({}, "abort"),
        chunk(call_delta(1, "{}")),
        chunk({"content": 3}),
        chunk({"content": ["a"]}),
        chunk({"reasoning_content": {"a": 1}}),
    ],
)
def test_what_an_engine_must_not_send_is_a_failure(event: bytes) -> None:
    with pytest.raises(StreamFailed):
        ResponseWriter(draft(), None).feed(event)


def test_calls_in_a_namespace_say_both_parts_whole_streamed_and_told_again() -> None:
    tool = {"type": "function", "name": "find"}
    tools = [{"type": "namespace", "name": "crm", "description": "d", "tools": [tool]}, tool]
    for flat, parts in (("crm__find", ("find", "crm")), ("find", ("find", None))):
        writer = ResponseWriter(draft(tools=tools), None)
        delta = call_delta(0, "{}", flat)
        raw = writer.feed(chunk(delta)) + writer.feed(chunk({}, "tool_calls"))
        last, streamed = writer.end(1_700_000_001)
        read_stream(raw + last)
        message = {"content": None, "tool_calls": delta["tool_calls"]}
        choice = {"finish_reason": "tool_calls", "message": message}
        whole = whole_response(draft(tools=tools), choice, TokenUsage(), 1_700_000_001)
        again = [event["item"] for event in retold(whole) if "item" in event]
        for item in (*streamed["output"], *whole["output"], *again):
            assert (item["name"], item.get("namespace")) == parts
