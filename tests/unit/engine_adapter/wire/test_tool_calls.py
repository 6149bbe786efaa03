from __future__ import annotations

from typing import Any

import orjson
import pytest

from engine_adapter.client.base import CHAT_PATH
from engine_adapter.wire.chunks import ChunkWriter, StreamHead
from engine_adapter.wire.replies import conforming_reply
from engine_adapter.wire.tool_calls import CallReader, forced_finish

CITY = '{"city": "a \\"}]\\\\", "days": [1, {"x": 2}]}'
TEXT = f'[{{"name": "get_weather", "parameters": {CITY}}}, {{"name": "g", "parameters": {{}}}}]'
CALLS = [("get_weather", CITY), ("g", "{}")]
NAMED = {"type": "function", "function": {"name": "f"}}


def read(pieces: list[str]) -> tuple[list[tuple[str, str]], bool]:
    """Calls as a client puts them together."""
    reader, calls = CallReader(), list[list[str]]()
    for piece in pieces:
        for delta in reader.feed(piece):
            if "id" in delta:
                assert delta["id"].startswith("call_")
                assert (delta["index"], delta["type"]) == (len(calls), "function")
                calls.append([delta["function"]["name"], ""])
            assert delta["index"] == len(calls) - 1
            calls[-1][1] += delta["function"]["arguments"]
    return [(name, arguments) for name, arguments in calls], reader.complete


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize("text", [TEXT, TEXT.replace("}, {", "} \n,{").replace("[{", "[ \n{")])
def test_calls_are_the_same_however_their_text_is_cut(text: str, size: int) -> None:
    calls, complete = read([text[i : i + size] for i in range(0, len(text), size)])
    assert complete
    assert calls == CALLS


def test_a_cut_list_gives_what_there_is_of_it() -> None:
    for end in range(len(TEXT)):
        calls, complete = read([TEXT[:end]])
        assert not complete
        for (name, arguments), (full_name, full) in zip(calls, CALLS, strict=False):
            assert name == full_name
            assert full.startswith(arguments)


def test_the_finish_reason_of_forced_calls() -> None:
    assert forced_finish({"tool_choice": "required"}) == "tool_calls"
    assert forced_finish({"tool_choice": NAMED}) == "stop"
    for free in ({}, {"tool_choice": None}, {"tool_choice": "auto"}, {"tool_choice": "none"}):
        assert forced_finish(free) is None


def whole(message: dict[str, Any], finish: str, forced: str | None) -> dict[str, Any]:
    answer = {"choices": [{"message": message, "finish_reason": finish, "index": 0}]}
    body, _ = conforming_reply(CHAT_PATH, "rid", "m", answer, forced=forced)
    choice: dict[str, Any] = body["choices"][0]
    return choice


def streamed(
    pieces: list[dict[str, Any]], finish: str, forced: str | None
) -> tuple[list[dict[str, Any]], str]:
    """Deltas after the role chunk's, without the finish chunk's, and its finish reason."""
    head = StreamHead(
        chat=True, public_id="i", created=1, model="m", include_usage=False, forced=forced
    )
    writer = ChunkWriter(head, 0)
    choices = [
        *({"delta": piece, "finish_reason": None} for piece in pieces),
        {"delta": {}, "finish_reason": finish},
    ]
    raw = b"".join(writer.feed(orjson.dumps({"choices": [choice]})) for choice in choices)
    sent = [orjson.loads(event[6:])["choices"][0] for event in raw.split(b"\n\n")[:-1]]
    assert [one["finish_reason"] for one in sent[:-1]] == [None] * (len(sent) - 1)
    assert sent[0]["delta"]["role"] == "assistant"
    return [one["delta"] for one in sent[1:-1]], sent[-1]["finish_reason"]


def content(*texts: str) -> list[dict[str, Any]]:
    return [{"content": text} for text in texts]


@pytest.mark.contract("C-06")
@pytest.mark.parametrize("forced", ["tool_calls", "stop"])
def test_forced_calls_in_a_whole_reply(forced: str) -> None:
    choice = whole({"content": TEXT}, "stop", forced)
    assert choice["finish_reason"] == forced
    message = choice["message"]
    assert message["content"] is None
    assert all(set(call) == {"id", "type", "function"} for call in message["tool_calls"])
    made = [
        (one["function"]["name"], one["function"]["arguments"]) for one in message["tool_calls"]
    ]
    assert made == CALLS
    assert len({call["id"] for call in message["tool_calls"]}) == 2


@pytest.mark.contract("S-12")
@pytest.mark.parametrize("forced", ["tool_calls", "stop"])
def test_forced_calls_in_a_stream(forced: str) -> None:
    deltas, finish = streamed(content(TEXT[:20], TEXT[20:50], TEXT[50:]), "stop", forced)
    assert finish == forced
    assert all(set(delta) == {"tool_calls"} for delta in deltas)
    arguments = ["", ""]
    for call in (call for delta in deltas for call in delta["tool_calls"]):
        arguments[call["index"]] += call["function"]["arguments"]
    assert arguments == [full for _, full in CALLS]


def test_a_cut_answer_says_length_and_gives_what_there_is() -> None:
    cut = TEXT[:60]
    choice = whole({"content": cut}, "length", "tool_calls")
    assert choice["finish_reason"] == "length"
    (call,) = choice["message"]["tool_calls"]
    assert CITY.startswith(call["function"]["arguments"])
    deltas, finish = streamed(content(cut), "length", "tool_calls")
    assert finish == "length"
    assert deltas[0]["tool_calls"][0]["function"] == call["function"]
    # A stop text of the caller's ended it: no finished call, so not "tool_calls" either.
    assert whole({"content": cut}, "stop", "tool_calls")["finish_reason"] == "stop"


@pytest.mark.parametrize("text", ["I would rather not.", '[{"name": "get_'])
def test_text_without_a_call_stays_text(text: str) -> None:
    choice = whole({"content": text}, "length", "tool_calls")
    assert (choice["message"]["content"], choice["finish_reason"]) == (text, "length")
    assert "tool_calls" not in choice["message"]
    deltas, finish = streamed(content(text[:5], text[5:]), "length", "tool_calls")
    assert (deltas, finish) == (content(text), "length")


def test_an_engine_that_makes_calls_itself_is_left_alone() -> None:
    call = {"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    choice = whole({"content": "", "tool_calls": [call]}, "tool_calls", "stop")
    assert choice["message"]["tool_calls"][0]["id"] == "c"
    assert choice["finish_reason"] == "tool_calls"
    deltas, finish = streamed(
        [*content(" "), {"tool_calls": [call]}, *content("so")], "tool_calls", "stop"
    )
    assert deltas == [{"content": " ", "tool_calls": [call]}, {"content": "so"}]
    assert finish == "tool_calls"


def test_a_choice_left_to_the_model_is_not_rewritten() -> None:
    assert whole({"content": TEXT}, "stop", None)["message"]["content"] == TEXT
    assert streamed(content(TEXT), "stop", None) == (content(TEXT), "stop")
