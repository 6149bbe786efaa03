"""Bodies of responses: what is refused and by which name, and the chat call they become."""

from __future__ import annotations

from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
from openai.types.responses import response_input_item_param as item_param
from openai.types.responses import tool_param

from api.chat_request import check_chat
from api.errors import InvalidRequest
from api.mapped_fields import mapped
from api.responses.items import listed, messages_of
from api.responses.request import chat_body, check_response, renamed
from api.responses.resource import ResponseDraft
from api.responses.tools import SKIPPED_ITEMS, SKIPPED_TOOLS

TOOL = {"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": True}
SPACE: dict[str, Any] = {"type": "namespace", "name": "crm", "description": "d", "tools": [TOOL]}
OTHER = {"type": "function", "name": "g"}
CALL = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "c", "output": "4"}
SCHEMA = {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": True}


def body(**more: Any) -> dict[str, Any]:
    return {"model": "m", "input": "hi", **more}


def chat(**more: Any) -> dict[str, Any]:
    """The chat call of a body, which must be a good one."""
    given = body(**more)
    check_response(given)
    messages = messages_of(listed(given["input"], ""), given.get("instructions"))
    made = chat_body(given, messages)
    check_chat(made)
    return made


@pytest.mark.parametrize(
    ("param", "more"),
    [
        ("model", {"model": None}),
        ("input", {"input": None}),
        ("input", {"input": 1}),
        ("input", {"input": []}),
        ("input[0]", {"input": ["x"]}),
        ("input[0].role", {"input": [{"role": "critic", "content": "x"}]}),
        ("input[0].content", {"input": [{"role": "user"}]}),
        ("input[0].content[0].type", {"input": [{"role": "user", "content": [{}]}]}),
        (
            "input[0].content[0].image_url",
            {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]},
        ),
        ("input[0].type", {"input": [{"type": "dream_call", "id": "x"}]}),
        ("input[0].call_id", {"input": [{**OUTPUT, "call_id": None}]}),
        ("input[0].output", {"input": [{**OUTPUT, "output": None}]}),
        ("input[0].arguments", {"input": [{**CALL, "arguments": None}]}),
        ("input[0].summary", {"input": [{"type": "reasoning", "id": "r", "summary": "x"}]}),
        ("tools[0].type", {"tools": [{"type": "dream"}]}),
        ("tools[0].name", {"tools": [{"type": "namespace", "tools": []}]}),
        ("tools[0].tools", {"tools": [{"type": "namespace", "name": "n"}]}),
        ("tools[0].tools[0].type", {"tools": [{**SPACE, "tools": [{**SPACE, "name": "o"}]}]}),
        ("tools", {"tools": [SPACE, SPACE]}),
        ("tool_choice", {"tools": [{"type": "web_search"}], "tool_choice": "required"}),
        (
            "tool_choice.type",
            {"tools": [TOOL, {"type": "custom", "name": "x"}], "tool_choice": {"type": "custom"}},
        ),
        ("tool_choice", {"tools": [SPACE], "tool_choice": {"type": "function", "name": "f"}}),
        ("tools[0].parameters", {"tools": [{**TOOL, "parameters": "x"}]}),
        ("tool_choice", {"tool_choice": "required"}),
        ("tools[0].name", {"tools": [{**TOOL, "name": ""}]}),
        ("tool_choice", {"tools": [TOOL], "tool_choice": {"type": "function", "name": "h"}}),
        ("tool_choice.type", {"tools": [TOOL], "tool_choice": {"type": "file_search"}}),
        ("text.format.type", {"text": {"format": {"type": "grammar"}}}),
        ("text.format.schema", {"text": {"format": {"type": "json_schema", "name": "n"}}}),
        ("text.verbosity", {"text": {"verbosity": "loud"}}),
        ("reasoning.effort", {"reasoning": {"effort": "some"}}),
        ("include[0]", {"include": ["everything"]}),
        ("truncation", {"truncation": "middle"}),
        ("max_output_tokens", {"max_output_tokens": 0}),
        ("stop[0]", {"stop": [""]}),
        ("temperature", {"temperature": 3}),
        ("metadata", {"metadata": {str(i): "x" for i in range(17)}}),
        ("prompt", {"prompt": {"id": "pmpt_1"}}),
        ("conversation", {"conversation": "conv_1", "previous_response_id": "resp_1"}),
        ("stream_options", {"stream_options": {"include_obfuscation": False}}),
        ("background", {"background": True, "store": False}),
        ("lora_path", {"lora_path": "x"}),
    ],
)
def test_what_is_wrong_is_named(param: str, more: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest) as refused:
        check_response(body(**more))
    assert refused.value.param == param


def test_a_text_is_one_message_and_instructions_come_first() -> None:
    assert chat()["messages"] == [{"role": "user", "content": "hi"}]
    many = [
        {"role": "developer", "content": "b"},
        {"role": "user", "content": [{"type": "input_text", "text": "c"}]},
        {"role": "system", "content": "d"},
    ]
    assert chat(instructions="a", input=many)["messages"] == [
        {"role": "system", "content": "a\n\nb"},
        {"role": "user", "content": "c"},
        {"role": "system", "content": "d"},
    ]


def test_a_turn_of_several_items_is_one_message() -> None:
    said = {"type": "message", "role": "assistant", "id": "msg_1", "status": "completed"}
    turn = [
        {"role": "user", "content": "2+2?"},
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": [
            {"type": "reasoning_text", "text": "hm"}]},
        {**said, "content": [{"type": "output_text", "text": "I call.", "annotations": []}]},
        CALL,
        {**CALL, "call_id": "d"},
        OUTPUT,
        {**OUTPUT, "call_id": "d", "output": [{"type": "input_text", "text": "5"}]},
    ]  # fmt: skip
    calls = [
        {"id": one, "type": "function", "function": {"name": "f", "arguments": "{}"}}
        for one in "cd"
    ]
    assert chat(input=turn)["messages"][1:] == [
        {
            "role": "assistant",
            "content": "I call.",
            "reasoning_content": "hm",
            "tool_calls": calls,
        },
        {"role": "tool", "tool_call_id": "c", "content": "4"},
        {"role": "tool", "tool_call_id": "d", "content": "5"},
    ]


@pytest.mark.parametrize("items", [[CALL], [OUTPUT]])
def test_a_call_and_its_output_belong_together(items: list[Any]) -> None:
    with pytest.raises(InvalidRequest, match="function call") as refused:
        chat(input=items)
    assert refused.value.param == "input"


def test_tools_and_the_choice_among_them() -> None:
    made = chat(tools=[TOOL, OTHER])
    function = {"name": "f", "parameters": {"type": "object"}, "strict": True}
    assert made["tools"][0] == {"type": "function", "function": function}
    assert made["tool_choice"] == "auto"
    named = chat(tools=[TOOL, OTHER], tool_choice={"type": "function", "name": "g"})
    assert named["tool_choice"] == {"type": "function", "function": {"name": "g"}}
    allowed = {"type": "allowed_tools", "mode": "required", "tools": [OTHER]}
    few = chat(tools=[TOOL, OTHER], tool_choice=allowed)
    assert [tool["function"]["name"] for tool in few["tools"]] == ["g"]
    assert few["tool_choice"] == "required"


def test_the_other_fields_under_their_chat_names() -> None:
    made = chat(
        max_output_tokens=5,
        text={"format": SCHEMA, "verbosity": "low"},
        reasoning={"effort": "max", "summary": "auto"},
        include=["message.output_text.logprobs"],
        top_logprobs=2,
        service_tier="ultrafast",
        top_k=4,
        metadata={"a": "b"},
        store=False,
    )
    inner = {"name": "n", "schema": {"type": "object"}, "strict": True}
    assert made == {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "max_completion_tokens": 5,
        "response_format": {"type": "json_schema", "json_schema": inner},
        "verbosity": "low",
        "reasoning_effort": "max",
        "logprobs": True,
        "top_logprobs": 2,
        "service_tier": "default",
        "top_k": 4,
    }
    assert "top_logprobs" not in chat(top_logprobs=0)
    assert chat(text={"format": {"type": "json_object"}})["response_format"] == {
        "type": "json_object"
    }


@pytest.mark.parametrize(
    ("chat_name", "name"),
    [
        ("messages", "input"),
        ("messages[0].content", "input"),
        ("response_format", "text.format"),
        ("response_format.json_schema.schema", "text.format"),
        ("max_completion_tokens", "max_output_tokens"),
        ("temperature", "temperature"),
        ("chat_template_kwargs.x", "chat_template_kwargs.x"),
        (None, None),
    ],
)
def test_errors_name_the_field_that_was_sent(chat_name: str | None, name: str | None) -> None:
    said = f"Invalid value for '{chat_name}': cannot be combined with 'response_format'."
    error = renamed(InvalidRequest(said, param=chat_name), {})
    assert error.param == name
    assert error.message == f"Invalid value for '{name}': cannot be combined with 'text.format'."


def test_a_namespace_is_unfolded_and_its_calls_in_the_history_too() -> None:
    call = {**CALL, "namespace": "crm"}
    made = chat(tools=[SPACE, OTHER], input=[call, OUTPUT])
    assert [tool["function"]["name"] for tool in made["tools"]] == ["crm__f", "g"]
    assert made["tools"][0]["function"]["parameters"] == TOOL["parameters"]
    assert made["messages"][0]["tool_calls"][0]["function"]["name"] == "crm__f"
    forced = chat(tools=[SPACE], tool_choice={"type": "function", "name": "f", "namespace": "crm"})
    assert forced["tool_choice"]["function"]["name"] == "crm__f"


def test_names_that_are_too_long_stay_apart() -> None:
    tools = [{"type": "function", "name": "f" * 60 + end} for end in "ab"]
    made = chat(tools=[{**SPACE, "name": "n" * 60, "tools": tools}])
    names = {tool["function"]["name"] for tool in made["tools"]}
    assert len(names) == 2
    assert max(map(len, names)) == 64


def test_what_is_not_served_is_skipped_with_one_warning_for_each_kind() -> None:
    items: list[dict[str, Any]] = [
        {"type": kind, "id": f"x{n}"} for n, kind in enumerate(sorted(SKIPPED_ITEMS))
    ]
    tools: list[dict[str, Any]] = [{"type": kind, "name": "x"} for kind in sorted(SKIPPED_TOOLS)]
    given = body(
        input=[*items, {"role": "user", "content": "hi"}, *items],
        tools=[*tools, {**SPACE, "tools": [TOOL, {"type": "custom", "name": "y"}]}],
    )
    made = chat(**given)
    assert made["messages"] == [{"role": "user", "content": "hi"}]
    assert [tool["function"]["name"] for tool in made["tools"]] == ["crm__f"]
    told = ResponseDraft(given, "0" * 32, 1).at("in_progress")
    assert len(told["warnings"]) == len(SKIPPED_ITEMS) + len(SKIPPED_TOOLS)
    assert {warning["param"] for warning in told["warnings"]} == {"tools", "input"}
    assert "warnings" not in ResponseDraft(body(tools=[TOOL]), "0" * 32, 1).at("in_progress")


def test_additional_tools_join_the_others() -> None:
    more = {"type": "additional_tools", "role": "developer", "tools": [OTHER]}
    given = body(input=[more, {"role": "user", "content": "hi"}], tools=[TOOL])
    made = chat(**mapped("/v1/responses", given))
    assert [tool["function"]["name"] for tool in made["tools"]] == ["f", "g"]
    assert mapped("/v1/responses", body(input=[more]))["input"] == []


def test_every_kind_of_tool_and_item_of_the_official_client_is_known() -> None:
    tools = {kind for one in get_args(tool_param.ToolParam) for kind in kinds_of(one)}
    assert tools - SKIPPED_TOOLS == {"function", "namespace"}
    items = {kind for one in get_args(item_param.ResponseInputItemParam) for kind in kinds_of(one)}
    served = {"message", "function_call", "function_call_output", "reasoning", "item_reference"}
    assert items - SKIPPED_ITEMS == served | {"additional_tools"}


def kinds_of(shape: Any) -> set[str]:
    hint = get_type_hints(shape).get("type", Any)
    found = (
        get_args(hint)
        if get_origin(hint) is Literal
        else [
            kind for one in get_args(hint) if get_origin(one) is Literal for kind in get_args(one)
        ]
    )
    return set(found)


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"background_options": {}}, None),
        ({"background_options": {"completion_window": "soonest", "continuation_id": "c"}}, None),
        ({"background_options": {"completion_window": "8h"}, "background": True}, None),
        ({"background_options": {"completion_window": "8h"}}, ".completion_window"),
        (
            {"background_options": {"completion_window": "2h"}, "background": True, "stream": True},
            ".completion_window",
        ),
        ({"background_options": {"completion_window": "1h"}}, ".completion_window"),
        ({"background_options": {"continuation_id": 3}}, ".continuation_id"),
        ({"background_options": {"window": "8h"}}, ".window"),
        ({"background_options": "8h"}, ""),
    ],
)
def test_options_of_the_background(more: dict[str, Any], param: str | None) -> None:
    body = {"model": "m", "input": "hi", **more}
    if param is None:
        check_response(body)
        return
    with pytest.raises(InvalidRequest) as refused:
        check_response(body)
    assert refused.value.param == f"background_options{param}"


def test_errors_name_a_tool_by_its_own_place() -> None:
    """The chat call has only the tools that are served and allowed, one after the other."""
    body = {"tools": [{"type": "web_search"}, SPACE, OTHER]}
    said = "The engine cannot compile the schema in 'tools[1].function.parameters'."
    error = renamed(InvalidRequest(said, param="tools[1].function.parameters"), body)
    assert error.param == "tools[2].parameters"
    assert error.message == "The engine cannot compile the schema in 'tools[2].parameters'."
    assert renamed(InvalidRequest("", param="tools[0].function.parameters.x"), body).param == (
        "tools[1].tools[0].parameters.x"
    )
    chosen = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "g"}]}
    only = {**body, "tool_choice": chosen}
    assert renamed(InvalidRequest("", param="tools[0].function.parameters"), only).param == (
        "tools[2].parameters"
    )
