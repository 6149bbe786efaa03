"""Tool calls that the caller forces, from an engine without a tool-call parser."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.integration.contract.conftest import Live, line

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS: list[Any] = [
    {"type": "function", "function": {"name": "get_weather", "parameters": CITY}},
    {"type": "function", "function": {"name": "get_time", "parameters": CITY}},
]
NAMED = {"type": "function", "function": {"name": "get_time"}}
HI = [{"role": "user", "content": "hi"}]
ARGUMENTS = '{"city": "number 0"}'
CASES = [
    pytest.param("required", ["get_weather", "get_time"], "tool_calls", id="required"),
    pytest.param(NAMED, ["get_time"], "stop", id="named"),
]


@pytest.mark.contract("C-06", "C-21")
@pytest.mark.parametrize(("choice", "names", "finish"), CASES)
def test_forced_calls_for_the_official_client(
    live: Live, choice: Any, names: list[str], finish: str
) -> None:
    with live.client(_strict_response_validation=True) as client:
        reply = client.chat.completions.create(**live.chat("hi"), tools=TOOLS, tool_choice=choice)
    made = reply.choices[0]
    assert (made.finish_reason, made.message.content) == (finish, None)
    calls = made.message.tool_calls or []
    assert [(one.type, one.id[:5]) for one in calls] == [("function", "call_")] * len(names)
    assert len({one.id for one in calls}) == len(names)
    functions = [one.function for one in calls if one.type == "function"]
    assert [one.name for one in functions] == names
    assert [one.arguments for one in functions] == [ARGUMENTS] * len(names)


@pytest.mark.contract("S-12", "C-21")
@pytest.mark.parametrize(("choice", "names", "finish"), CASES)
def test_forced_calls_streamed_to_the_official_client(
    live: Live, choice: Any, names: list[str], finish: str
) -> None:
    with (
        live.client() as client,
        client.chat.completions.stream(
            **live.chat("hi"), tools=TOOLS, tool_choice=choice
        ) as stream,
    ):
        kinds = [event.type for event in stream]
        made = stream.get_final_completion().choices[0]
    assert "tool_calls.function.arguments.delta" in kinds
    assert "content.delta" not in kinds
    assert (made.finish_reason, made.message.content) == (finish, None)
    functions = [one.function for one in made.message.tool_calls or []]
    assert [(one.name, one.arguments) for one in functions] == [(name, ARGUMENTS) for name in names]


@pytest.mark.contract("C-22")
def test_one_call_where_parallel_ones_are_not_wanted(live: Live) -> None:
    with live.client() as client:
        reply = client.chat.completions.create(
            **live.chat("hi"), tools=TOOLS, tool_choice="required", parallel_tool_calls=False
        )
    assert len(reply.choices[0].message.tool_calls or []) == 1


def test_calls_cut_by_the_token_limit_say_so(live: Live) -> None:
    cut = live.chat("hi", tools=TOOLS, tool_choice="required", max_completion_tokens=5)
    with live.client() as client:
        (choice,) = client.chat.completions.create(**cut).choices
    assert choice.finish_reason == "length"
    (call,) = choice.message.tool_calls or []
    assert call.type == "function"
    assert ARGUMENTS.startswith(call.function.arguments)
    assert call.function.arguments != ARGUMENTS
    last = live.events("hi", tools=TOOLS, tool_choice="required", max_completion_tokens=5)[-2]
    assert last["choices"][0]["finish_reason"] == "length"


def test_forced_calls_in_a_batch(live: Live) -> None:
    batch = live.create_batch([line("a", tools=TOOLS, tool_choice="required", messages=HI)])
    live.process(batch)
    with live.client() as client:
        output = client.batches.retrieve(batch).output_file_id
        assert output
        row = json.loads(client.files.content(output).text)
    (choice,) = row["response"]["body"]["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] is None
    assert len(choice["message"]["tool_calls"]) == 2
