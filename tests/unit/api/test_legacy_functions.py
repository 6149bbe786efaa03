"""`functions` and `function_call`: a request in today's words, and the answer in those asked in."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from api.chat_request import check_chat
from api.chunks import ChunkWriter, StreamHead
from api.engine_errors import schema_param
from api.errors import InvalidRequest
from api.mapped_fields import mapped
from api.replies import conforming_reply
from api.tool_calls import ToolOffer, offer_of
from engine_adapter.client.base import CHAT_PATH
from engine_adapter.client.fields import CHAT_FIELDS

CITY = {"type": "object", "properties": {"city": {"type": "string"}}}
WEATHER = {"name": "weather", "description": "now", "parameters": CITY}
HI = {"role": "user", "content": "hi"}
BODY: dict[str, Any] = {"model": "m", "messages": [HI], "functions": [WEATHER, {"name": "time"}]}
CALL = {"name": "weather", "arguments": '{"city": "Rome"}'}


def test_functions_are_tools_of_which_one_is_called() -> None:
    body = mapped(CHAT_PATH, BODY)
    check_chat(body)
    assert body["tools"] == [
        {"type": "function", "function": WEATHER},
        {"type": "function", "function": {"name": "time"}},
    ]
    assert body["parallel_tool_calls"] is False
    assert "tool_choice" not in body
    assert mapped(CHAT_PATH, mapped(CHAT_PATH, {"model": "m", "messages": [HI]})) == {
        "model": "m", "messages": [HI],
    }  # fmt: skip
    assert offer_of(body) == ToolOffer(single=True, older=True)
    assert schema_param(body) == "functions"
    assert not CHAT_FIELDS & {"functions", "function_call"}


@pytest.mark.parametrize("choice", ["auto", "none", {"name": "time"}])
def test_the_choice_among_them(choice: Any) -> None:
    body = mapped(CHAT_PATH, {**BODY, "function_call": choice})
    check_chat(body)
    named = {"type": "function", "function": choice}
    assert body["tool_choice"] == (named if isinstance(choice, dict) else choice)
    assert "function_call" not in body


def test_calls_and_results_of_earlier_turns() -> None:
    messages: list[dict[str, Any]] = [
        HI,
        {"role": "assistant", "content": None, "function_call": CALL},
        {"role": "function", "name": "weather", "content": "rain"},
        {"role": "assistant", "content": "Rain.", "function_call": None},
    ]
    sent = {"model": "m", "messages": messages}
    body = mapped(CHAT_PATH, sent)
    check_chat(body)
    _, call, result, said = body["messages"]
    (made,) = call["tool_calls"]
    assert (made["type"], made["function"]) == ("function", CALL)
    assert (result["role"], result["content"]) == ("tool", "rain")
    assert result["tool_call_id"] == made["id"]
    assert said == {"role": "assistant", "content": "Rain."}
    assert "function_call" in messages[1], "what was sent is left"


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ({"functions": 1}, "functions"),
        ({"functions": [1]}, "functions[0]"),
        ({"functions": [{}]}, "functions[0].name"),
        ({"functions": [{"name": "n" * 65}]}, "functions[0].name"),
        ({"functions": [{"name": "f", "parameters": 1}]}, "functions[0].parameters"),
        ({"functions": [{"name": "f", "strict": True}]}, "functions[0].strict"),
        ({"functions": [{"name": "f", "description": 1}]}, "functions[0].description"),
        ({"functions": [{"name": "f"}] * 129}, "functions"),
        ({"function_call": "required"}, "function_call"),
        ({"function_call": {"name": "nobody"}}, "function_call.name"),
        ({"function_call": {}}, "function_call.name"),
        ({"function_call": 1}, "function_call"),
        ({"function_call": "auto", "functions": []}, "function_call"),
        ({"function_call": "auto", "functions": None}, "function_call"),
        ({"tools": [{"type": "function", "function": WEATHER}]}, "functions"),
        ({"function_call": "auto", "tool_choice": "auto"}, "function_call"),
        ({"messages": [{**HI, "function_call": CALL}]}, "messages[0].function_call"),
        ({"messages": [{"role": "function", "content": "x"}]}, "messages[0].name"),
        ({"messages": [{"role": "function", "name": "f"}]}, "messages[0].content"),
        (
            {"messages": [{"role": "assistant", "function_call": "x"}]},
            "messages[0].function_call",
        ),
        (
            {"messages": [{"role": "assistant", "function_call": {"name": "f"}}]},
            "messages[0].function_call.arguments",
        ),
        (
            {"messages": [{"role": "assistant", "function_call": CALL, "tool_calls": [1]}]},
            "messages[0].function_call",
        ),
    ],
)
def test_what_is_wrong_is_named_as_it_was_sent(given: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        check_chat(mapped(CHAT_PATH, {**BODY, **given}))
    assert refused.value.param == param


TAGGED = 'So: <tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>'
FORCED = '[{"name": "weather", "parameters": {"city": "Rome"}}]'
NATIVE = [{"index": 0, "id": "c", "type": "function", "function": CALL}]
ANSWERS: list[tuple[Any, dict[str, Any], str | None, str]] = [
    ("auto", {"content": TAGGED}, "So:", "function_call"),
    ("auto", {"content": None, "tool_calls": NATIVE}, None, "function_call"),
    ({"name": "weather"}, {"content": FORCED}, None, "stop"),
]


@pytest.mark.parametrize(("choice", "said", "text", "finish"), ANSWERS)
def test_a_call_is_a_function_call(
    choice: Any, said: dict[str, Any], text: str | None, finish: str
) -> None:
    offer = offer_of(mapped(CHAT_PATH, {**BODY, "function_call": choice}))
    made = {"index": 0, "message": {"role": "assistant", **said}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    reply = {"choices": [made], "usage": usage}
    body, _ = conforming_reply(CHAT_PATH, "rid", "m", reply, offer=offer)
    (whole,) = body["choices"]
    assert whole["message"]["function_call"] == CALL
    assert "tool_calls" not in whole["message"]
    assert (whole["message"]["content"], whole["finish_reason"]) == (text, finish)

    head = StreamHead(
        chat=True, public_id="x", created=1, model="m", include_usage=False, offer=offer
    )
    writer = ChunkWriter(head, 0)
    content = said["content"] or ""
    deltas: list[dict[str, Any]] = [{"content": char} for char in content]
    deltas += [{"tool_calls": said["tool_calls"]}] if "tool_calls" in said else []
    sent = b"".join(
        writer.feed(orjson.dumps({"choices": [{"index": 0, "delta": delta}]})) for delta in deltas
    )
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    sent += writer.feed(orjson.dumps(end))
    chunks = [orjson.loads(line[6:]) for line in sent.split(b"\n\n") if line]
    parts = [chunk["choices"][0] for chunk in chunks]
    calls = [part["delta"]["function_call"] for part in parts if "function_call" in part["delta"]]
    assert [call["name"] for call in calls if "name" in call] == ["weather"]
    assert "".join(call["arguments"] for call in calls) == CALL["arguments"]
    assert not any("tool_calls" in part["delta"] for part in parts)
    assert "".join(part["delta"].get("content") or "" for part in parts) == (text or "")
    assert parts[-1]["finish_reason"] == finish
