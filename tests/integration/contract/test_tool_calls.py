"""Tool calls, forced and chosen, from an engine without a tool-call parser."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.integration.contract.conftest import Live, error_of, line

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


@pytest.mark.contract("C-06", "C-21")
def test_tools_the_model_may_choose_from_are_never_dropped(live: Live) -> None:
    """Agents leave `tool_choice` away; the engine here has no tool-call parser."""
    with live.client(_strict_response_validation=True) as client:
        create = client.chat.completions.create
        (choice,) = create(**live.chat("fake:call=get_time"), tools=TOOLS).choices
        (spoken,) = create(**live.chat("fake:text=No_need."), tools=TOOLS).choices
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content == "I look."
    (call,) = choice.message.tool_calls or []
    assert call.type == "function"
    assert (call.function.name, json.loads(call.function.arguments)) == (
        "get_time", {"city": "a }] b"},
    )  # fmt: skip
    assert (spoken.finish_reason, spoken.message.content) == ("stop", "No need.")
    assert not spoken.message.tool_calls
    sent = live.engine.received[-1]
    assert "get_weather" in sent["messages"][0]["content"]
    assert sent["response_format"]["type"] == "structural_tag"


@pytest.mark.contract("S-12", "C-21")
def test_calls_the_model_chose_are_streamed_in_pieces(live: Live) -> None:
    with (
        live.client() as client,
        client.chat.completions.stream(**live.chat("fake:call=get_time"), tools=TOOLS) as stream,
    ):
        kinds = [event.type for event in stream]
        made = stream.get_final_completion().choices[0]
    assert kinds.count("tool_calls.function.arguments.delta") > 1
    assert (made.finish_reason, made.message.content) == ("tool_calls", "I look.")
    (call,) = made.message.tool_calls or []
    assert json.loads(call.function.arguments) == {"city": "a }] b"}


@pytest.mark.contract("C-21")
def test_the_result_of_a_call_goes_back_to_the_model(live: Live) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "get_time", "arguments": "{}"}}
    messages: list[Any] = [
        *HI,
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "fake:text=noon"},
    ]
    with live.client() as client:
        reply = client.chat.completions.create(
            model=live.gateway.model, messages=messages, tools=TOOLS
        )
    assert reply.choices[0].message.content == "noon"


@pytest.mark.contract("E-01")
def test_a_choice_among_some_of_the_tools(live: Live) -> None:
    chosen = {"mode": "required", "tools": [NAMED]}
    some = {"type": "allowed_tools", "allowed_tools": chosen}
    reply = live.ask("hi", tools=TOOLS, tool_choice=some).json()
    (choice,) = reply["choices"]
    assert [one["function"]["name"] for one in choice["message"]["tool_calls"]] == ["get_time"]
    assert choice["finish_reason"] == "tool_calls"
    chosen["tools"] = [{"type": "function", "function": {"name": "nobody"}}]
    assert error_of(live.ask("hi", tools=TOOLS, tool_choice=some), 400)["param"] == "tool_choice"


@pytest.mark.contract("E-01")
def test_what_cannot_be_called_is_refused_by_name(live: Live) -> None:
    custom = {"type": "custom", "custom": {"name": "shell"}}
    error = error_of(live.ask("hi", tools=[custom]), 400)
    assert (error["param"], error["code"]) == ("tools[0].type", "unsupported_parameter")


@pytest.mark.contract("E-11")
@pytest.mark.parametrize("choice", ["required", NAMED])
def test_forced_calls_have_no_log_probabilities(live: Live, choice: Any) -> None:
    forced = live.ask("hi", tools=TOOLS, tool_choice=choice, logprobs=True)
    error = error_of(forced, 400)
    assert (error["param"], error["code"]) == ("logprobs", "unsupported_parameter")


def test_offered_tools_in_a_batch(live: Live) -> None:
    batch = live.create_batch([line("a", "fake:call=get_time", tools=TOOLS)])
    live.process(batch)
    with live.client() as client:
        output = client.batches.retrieve(batch).output_file_id
        assert output
        row = json.loads(client.files.content(output).text)
    (choice,) = row["response"]["body"]["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["tool_calls"][0]["function"]["name"] == "get_time"


FORMS: list[dict[str, Any]] = [
    {"response_format": {"type": "json_object"}},
    {
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "a", "schema": {"type": "object"}},
        }
    },
    {"regex": r"\{.*\}"},
    {"ebnf": 'root ::= "{" [a-z]* "}"'},
]


@pytest.mark.contract("C-20", "C-21")
@pytest.mark.parametrize("form", FORMS, ids=lambda form: next(iter(form)))
@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_is_a_call_or_has_its_form(
    live: Live, form: dict[str, Any], stream: bool
) -> None:
    def ask(prompt: str, **fields: Any) -> tuple[str, list[dict[str, Any]], str]:
        asked = {"tools": TOOLS, **form, **fields}
        if not stream:
            (choice,) = live.ask(prompt, **asked).json()["choices"]
            message = choice["message"]
            calls = message.get("tool_calls") or []
            return message["content"] or "", calls, choice["finish_reason"]
        parts = [part for one in live.events(prompt, **asked)[:-1] for part in one["choices"]]
        text = "".join(part["delta"].get("content") or "" for part in parts)
        calls = [call for part in parts for call in part["delta"].get("tool_calls") or ()]
        return text, [call for call in calls if call.get("id")], parts[-1]["finish_reason"]

    text, calls, finish = ask("fake:call=get_time")
    assert (text, [one["function"]["name"] for one in calls]) == ("", ["get_time"])
    assert finish == "tool_calls"
    assert ask('fake:text={"a":"b"}') == ('{"a":"b"}', [], "stop")
    text, calls, finish = ask("hi", tool_choice="required", parallel_tool_calls=False)
    assert (text, len(calls), finish) == ("", 1, "tool_calls")
    assert not form.keys() & live.engine.received[-1].keys()


OLDER: dict[str, Any] = {"functions": [{"name": "get_time", "parameters": {"type": "object"}}]}


@pytest.mark.contract("C-21")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_functions_are_answered_in_their_own_words(live: Live) -> None:
    with live.client() as client:
        asked = {**live.chat("fake:call=get_time"), **OLDER}
        (choice,) = client.chat.completions.create(**asked).choices
        chunks = [*client.chat.completions.create(**asked, stream=True)]
    assert (choice.finish_reason, choice.message.content) == ("function_call", "I look.")
    assert choice.message.tool_calls is None
    call = choice.message.function_call
    assert call is not None
    assert (call.name, json.loads(call.arguments)) == ("get_time", {"city": "a }] b"})
    deltas = [chunk.choices[0].delta.function_call for chunk in chunks]
    parts = [delta for delta in deltas if delta is not None]
    assert [part.name for part in parts if part.name] == ["get_time"]
    assert "".join(part.arguments or "" for part in parts) == call.arguments
    assert chunks[-1].choices[0].finish_reason == "function_call"
    result = {"role": "function", "name": "get_time", "content": "fake:text=noon"}
    with live.client() as client:
        messages = [*HI, choice.message.model_dump(), result]
        more: Any = {**asked, "messages": messages}
        (after,) = client.chat.completions.create(**more).choices
    assert (after.message.content, after.finish_reason) == ("noon", "stop")
    batch = live.create_batch([line("a", "fake:call=get_time", **OLDER)])
    live.process(batch)
    with live.client() as client:
        output = client.batches.retrieve(batch).output_file_id
        assert output
        row = json.loads(client.files.content(output).text)
    (made,) = row["response"]["body"]["choices"]
    assert made["message"]["function_call"]["name"] == "get_time"


@pytest.mark.contract("C-20", "C-21")
def test_a_row_is_a_call_or_has_its_form(live: Live) -> None:
    form = {"type": "json_object"}
    bodies = {"a": "fake:call=get_time", "b": 'fake:text={"a":1}'}
    lines = [line(name, text, tools=TOOLS, response_format=form) for name, text in bodies.items()]
    batch = live.create_batch(lines)
    live.process(batch)
    with live.client() as client:
        output = client.batches.retrieve(batch).output_file_id
        assert output
        rows = [json.loads(row) for row in client.files.content(output).text.split("\n") if row]
    made = {row["custom_id"]: row["response"]["body"]["choices"][0] for row in rows}
    assert made["a"]["message"]["tool_calls"][0]["function"]["name"] == "get_time"
    assert made["b"]["message"]["content"] == '{"a":1}'
