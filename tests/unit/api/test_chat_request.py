from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.chat_request import _FIELDS, check_chat
from api.errors import InvalidRequest
from api.mapped_fields import mapped

GOOD: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


def schema_format(schema: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}


def deep(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels):
        value = {"a": value}
    return value


ACCEPTED = [
    {},
    {"temperature": 0, "top_p": 1, "presence_penalty": -2, "frequency_penalty": 2.0},
    {"n": 128, "max_tokens": 1, "max_completion_tokens": 1, "seed": -(1 << 63)},
    {"stop": "x"},
    {"stop": ["a", "b", "c", "d"]},
    {"logprobs": True, "top_logprobs": 20},
    {"logit_bias": {"50256": -100}},
    {"response_format": {"type": "text"}},
    {"response_format": {"type": "json_object"}},
    {"response_format": schema_format({"type": "object"})},
    {"tools": [TOOL], "tool_choice": "required", "parallel_tool_calls": False},
    {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "f"}}},
    {"user": "u", "safety_identifier": "x" * 64, "metadata": {"k": "v"}, "store": False},
    {"prompt_cache_key": "k", "reasoning_effort": "low", "verbosity": "low"},
    {"reasoning_effort": "max"},
    {"service_tier": "flex"},
    {"service_tier": None, "stop": None, "n": None, "stream": None, "stream_options": None},
    {"stream": True, "stream_options": {"include_usage": True, "include_obfuscation": False}},
    {"something_new": None, "priority": 0, "rid": None},
]

REFUSED = [
    ({"messages": None}, "messages"),
    ({"messages": []}, "messages"),
    ({"messages": "hi"}, "messages"),
    ({"messages": ["hi"]}, "messages[0]"),
    ({"messages": [{"content": "hi"}]}, "messages[0].role"),
    ({"messages": [{"role": "king", "content": "hi"}]}, "messages[0].role"),
    ({"messages": [{"role": "user"}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": 3}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": []}]}, "messages[0].content"),
    (
        {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
        "messages[0].content[0].image_url",
    ),
    (
        {"messages": [{"role": "user", "content": [{"type": "text"}]}]},
        "messages[0].content[0].text",
    ),
    ({"model": None}, "model"),
    ({"model": 3}, "model"),
    ({"temperature": 2.1}, "temperature"),
    ({"temperature": "hot"}, "temperature"),
    ({"temperature": True}, "temperature"),
    ({"top_p": -0.1}, "top_p"),
    ({"presence_penalty": 3}, "presence_penalty"),
    ({"frequency_penalty": -3}, "frequency_penalty"),
    ({"n": 0}, "n"),
    ({"n": 129}, "n"),
    ({"n": 1.5}, "n"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_completion_tokens": -1}, "max_completion_tokens"),
    ({"stop": ["a"] * 5}, "stop"),
    ({"stop": [1]}, "stop[0]"),
    ({"stop": ""}, "stop"),
    ({"stop": [""]}, "stop[0]"),
    ({"stop": ["x", ""]}, "stop[1]"),
    ({"response_format": {"type": "json_object", "schema": {}}}, "response_format.schema"),
    ({"response_format": {"type": "text", "json_schema": {}}}, "response_format.json_schema"),
    ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    ({"top_logprobs": 2}, "top_logprobs"),
    ({"logit_bias": {"50256": 101}}, "logit_bias.50256"),
    ({"logit_bias": {"word": 1}}, "logit_bias"),
    ({"seed": 1 << 63}, "seed"),
    ({"response_format": {"type": "xml"}}, "response_format.type"),
    ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
    ({"response_format": schema_format(None)}, "response_format.json_schema.schema"),
    ({"response_format": schema_format(deep(40))}, "response_format.json_schema.schema"),
    ({"response_format": schema_format({"e": [0] * 3000})}, "response_format.json_schema.schema"),
    ({"tools": [{"type": "function"}]}, "tools[0].function"),
    (
        {"response_format": schema_format({"items": {"pattern": "a{2000}"}})},
        "response_format.json_schema.schema.items",
    ),
    ({"regex": "[a-z]?" * 17}, "regex"),
    ({"ebnf": 'root ::= ("a"{1,99}){1,99}'}, "ebnf"),
    ({"tools": [{"type": "code"}]}, "tools[0].type"),
    *(
        ({"tools": [{"type": "function", "function": {"name": one}}]}, "tools[0].function.name")
        for one in ("", " ", "\n", "x" * 65, None, 1)
    ),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"tools": [TOOL], "tool_choice": "maybe"}, "tool_choice"),
    (
        {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "g"}}},
        "tool_choice",
    ),
    ({"metadata": {str(i): "" for i in range(17)}}, "metadata"),
    ({"metadata": {"k" * 65: "v"}}, "metadata"),
    ({"metadata": {"k": "v" * 513}}, "metadata.k"),
    ({"metadata": {"k": 1}}, "metadata.k"),
    ({"safety_identifier": "x" * 65}, "safety_identifier"),
    ({"service_tier": "gold"}, "service_tier"),
    ({"stream": "yes"}, "stream"),
    ({"stream_options": {"include_usage": True}}, "stream_options"),
    ({"stream": True, "stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
    ({"custom_logit_processor": "x"}, "custom_logit_processor"),
    ({"lora_path": "x"}, "lora_path"),
    ({"chat_template_kwargs": {"chat_template": "{{ 1 }}"}}, "chat_template_kwargs"),
]


@pytest.mark.parametrize("more", ACCEPTED, ids=str)
def test_accepted(more: dict[str, Any]) -> None:
    check_chat({**GOOD, **more})


@pytest.mark.parametrize(("more", "param"), REFUSED, ids=lambda value: str(value)[:60])
def test_refused_with_the_fields_name(more: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        check_chat({**GOOD, **more})
    assert refused.value.param == param
    assert refused.value.status == 400


@pytest.mark.parametrize("role", ["developer", "system", "user", "assistant", "tool", "function"])
def test_every_role_and_both_forms_of_content(role: str) -> None:
    for content in ("x", [{"type": "text", "text": "x"}, {"type": "text", "text": "y"}]):
        check_chat({**GOOD, "messages": [{"role": role, "content": content}]})


def test_an_assistant_may_have_said_nothing_but_tool_calls() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    said = {"role": "assistant", "content": None, "tool_calls": [call]}
    heard = {"role": "tool", "content": "42", "tool_call_id": "c"}
    check_chat({**GOOD, "messages": [{"role": "user", "content": "x"}, said, heard]})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4)
    ),
    max_leaves=8,
)
MESSAGE = st.dictionaries(
    st.sampled_from(["role", "content", "name", "tool_calls", "tool_call_id"]),
    JSON | st.just("user"),
)
BODY = st.dictionaries(st.sampled_from(sorted(_FIELDS)), JSON) | st.fixed_dictionaries(
    {"model": st.just("m"), "messages": st.lists(MESSAGE, max_size=3)},
    optional={name: JSON for name in _FIELDS if name not in ("model", "messages")},
)


@given(BODY)
def test_any_body_is_accepted_or_refused_and_nothing_else(body: dict[str, Any]) -> None:
    # Any other exception would be a defect, and a 500 for the caller.
    with suppress(InvalidRequest):
        check_chat(body)


SCHEMAS: list[dict[str, Any]] = [
    {"pattern": "\0"},
    {"patternProperties": {"a\0": {}}},
    {"propertyNames": {"pattern": "\0"}},
    {"anyOf": [{"items": {"pattern": "\0a"}}]},
]
BY_SCHEMA: list[tuple[dict[str, Any], str]] = [
    (make(schema), param)
    for schema in SCHEMAS
    for make, param in (
        (
            lambda one: {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "a", "schema": one},
                }
            },
            "response_format.json_schema.schema",
        ),
        (
            lambda one: {
                "tools": [{"type": "function", "function": {"name": "f", "parameters": one}}]
            },
            "tools[0].function.parameters",
        ),
        (lambda one: {"guided_json": one}, "guided_json"),
    )
]


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"regex": "\0"}, "regex"),
        ({"regex": "a\0b"}, "regex"),
        ({"ebnf": 'root ::= "\0"'}, "ebnf"),
        ({"guided_regex": "\0"}, "guided_regex"),
        *BY_SCHEMA,
    ],
)
def test_a_pattern_that_would_end_its_engine(more: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        check_chat(mapped("/v1/chat/completions", {**GOOD, **more}))
    assert (refused.value.param, refused.value.code) == (param, "invalid_value")
    plain = {"type": "object", "properties": {"pattern": {"enum": ["\0"]}}}
    check_chat(
        {**GOOD, "tools": [{"type": "function", "function": {"name": "f", "parameters": plain}}]}
    )
