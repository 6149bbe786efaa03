"""What engines with and without a tool-call parser are asked for."""

from __future__ import annotations

import json
from typing import Any

import pytest

from api.tool_prompt import may_call, with_tools

CITY = {"type": "object", "properties": {"city": {"type": "string"}}}


def function(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": CITY}}


TOOLS = [function("weather"), function("time")]
HI = {"role": "user", "content": "hi"}
BODY: dict[str, Any] = {"model": "m", "messages": [HI], "tools": TOOLS}


def test_an_engine_with_a_parser_gets_the_tools() -> None:
    assert with_tools(BODY, parses=True) == BODY
    named = {**BODY, "tool_choice": function("time")}
    assert with_tools(named, parses=True) == {**named, "tools": TOOLS[1:]}


def test_allowed_tools_are_fewer_tools() -> None:
    for mode in ("auto", "required"):
        chosen = {"mode": mode, "tools": [{"type": "function", "function": {"name": "time"}}]}
        body = {**BODY, "tool_choice": {"type": "allowed_tools", "allowed_tools": chosen}}
        assert may_call(body) == TOOLS[1:]
        sent = with_tools(body, parses=True)
        assert (sent["tools"], sent["tool_choice"]) == (TOOLS[1:], mode)


def test_any_other_engine_is_told_in_words_and_held_by_a_grammar() -> None:
    sent = with_tools({**BODY, "tool_choice": "auto", "parallel_tool_calls": False}, parses=False)
    assert not {"tools", "tool_choice", "parallel_tool_calls"} & set(sent)
    system, user = sent["messages"]
    assert (system["role"], user) == ("system", HI)
    assert json.dumps(CITY, separators=(",", ":")) in system["content"]
    form = sent["response_format"]["format"]
    assert (form["type"], form["triggers"]) == ("triggered_tags", ["<tool_call>"])
    assert form["stop_after_first"]
    assert [tag["begin"] for tag in form["tags"]] == [
        f'<tool_call>\n{{"name": "{name}", "arguments": ' for name in ("weather", "time")
    ]
    assert [tag["content"]["json_schema"] for tag in form["tags"]] == [CITY, CITY]
    assert BODY["messages"] == [HI], "the caller's body stays as it is"


def test_forced_calls_keep_their_tools() -> None:
    sent = with_tools({**BODY, "tool_choice": "required"}, parses=False)
    assert (sent["tools"], sent["tool_choice"]) == (TOOLS, "required")
    assert sent["messages"][0]["role"] == "system"
    assert "response_format" not in sent


def test_a_system_message_stays_first() -> None:
    for content in ("Be brief.", [{"type": "text", "text": "Be brief."}]):
        messages = [{"role": "system", "content": content}, HI]
        (system, user) = with_tools({**BODY, "messages": messages}, parses=False)["messages"]
        assert system["content"].startswith("Be brief.\n\nYou can call functions.")
        assert user == HI


def test_earlier_calls_and_results_are_told_in_the_same_notation() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "time", "arguments": '{"a": 1}'}}
    messages = [
        HI,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "noon"},
        {"role": "tool", "tool_call_id": "d", "content": [{"type": "text", "text": "rain"}]},
    ]
    for tools in ({"tools": TOOLS}, {}):
        sent = with_tools({"model": "m", "messages": messages, **tools}, parses=False)["messages"]
        assert [one["role"] for one in sent[-3:]] == ["user", "assistant", "user"]
        assert sent[-2]["content"] == (
            '<tool_call>\n{"name": "time", "arguments": {"a": 1}}\n</tool_call>'
        )
        responses = (
            "<tool_response>\nnoon\n</tool_response>\n<tool_response>\nrain\n</tool_response>"
        )
        assert sent[-1]["content"] == responses
    assert with_tools({"messages": messages}, parses=True)["messages"] == messages


SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
FORMS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (
        {"response_format": {"type": "json_object"}},
        {"type": "json_schema", "json_schema": {"type": "object"}},
    ),
    (
        {
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "a", "schema": SCHEMA},
            }
        },
        {"type": "json_schema", "json_schema": SCHEMA},
    ),
    ({"regex": "a+"}, {"type": "regex", "pattern": "a+"}),
    ({"ebnf": 'root ::= "a"'}, {"type": "grammar", "grammar": 'root ::= "a"'}),
]


@pytest.mark.parametrize("parses", [False, True])
@pytest.mark.parametrize(("form", "part"), FORMS, ids=lambda form: next(iter(form)))
def test_one_grammar_says_calls_or_the_form(
    form: dict[str, Any], part: dict[str, Any], parses: bool
) -> None:
    for single in (False, True):
        body = {**BODY, **form, "parallel_tool_calls": not single}
        sent = with_tools(body, parses=parses)
        assert not {"tools", "tool_choice", "parallel_tool_calls", "regex", "ebnf"} & set(sent)
        calls, answer = sent["response_format"]["format"]["elements"]
        assert answer == part
        assert (calls["type"], calls["at_least_one"]) == ("tags_with_separator", True)
        assert calls["stop_after_first"] == single
        assert [tag["content"]["json_schema"] for tag in calls["tags"]] == [CITY, CITY]
        assert "You can call functions" in sent["messages"][0]["content"]
    none = {**BODY, **form, "tool_choice": "none"}
    assert with_tools(none, parses=parses) == none


@pytest.mark.parametrize("parses", [False, True])
@pytest.mark.parametrize(("form", "part"), FORMS, ids=lambda form: next(iter(form)))
@pytest.mark.parametrize("choice", ["required", function("time")])
def test_a_forced_call_is_the_answer(
    form: dict[str, Any], part: dict[str, Any], parses: bool, choice: Any
) -> None:
    """SGLang lets a form win over the calls that are forced."""
    sent = with_tools({**BODY, **form, "tool_choice": choice}, parses=parses)
    assert not form.keys() & sent.keys()
    assert sent["tool_choice"] == choice


def test_a_form_and_calls_of_earlier_turns_are_told_in_words() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "time", "arguments": "{}"}}
    messages = [HI, {"role": "assistant", "tool_calls": [call]}, {"role": "tool", "content": "no"}]
    body = {**BODY, "messages": messages, "response_format": {"type": "json_object"}}
    sent = with_tools(body, parses=True)["messages"]
    assert [one["role"] for one in sent] == ["system", "user", "assistant", "user"]


def test_references_are_true_in_the_one_schema_of_forced_calls() -> None:
    """SGLang puts the definitions of all tools side by side, and drops those of a named one."""
    node = {
        "type": "object",
        "properties": {"next": {"$ref": "#"}, "at": {"$ref": "#/$defs/place"}},
        "$defs": {"place": {"type": "string"}},
    }
    tools = [
        {"type": "function", "function": {"name": name, "parameters": node}} for name in ("a", "b")
    ]
    for choice in ("required", function("a")):
        sent = with_tools({**BODY, "tools": tools, "tool_choice": choice}, parses=False)
        assert sent["tool_choice"] == "required"
        for tool in sent["tools"]:
            name, rooted = tool["function"]["name"], tool["function"]["parameters"]
            assert rooted["$ref"] == f"#/$defs/{name}"
            (whole,) = rooted["$defs"].values()
            assert whole["properties"] == {
                "next": {"$ref": f"#/$defs/{name}"},
                "at": {"$ref": f"#/$defs/{name}/$defs/place"},
            }
    assert [tool["function"]["name"] for tool in sent["tools"]] == ["a"]
