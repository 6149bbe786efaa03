"""No key inside of a request's objects is dropped in silence."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest
from openai.types import chat, responses, shared_params
from openai.types.responses import response_input_item_param as items

from api import objects
from api.chat_request import check_chat
from api.completion_request import check_completion
from api.errors import InvalidRequest
from api.objects import OBJECTS, REFUSED_KEYS, TAKEN_KEYS
from api.responses.request import check_response

PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAC"
    "hwGA60e6kgAAAABJRU5ErkJggg=="
)
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}
CHAT_TOOL = {"type": "function", "function": {"name": "f", "parameters": SCHEMA, "strict": None}}
CHAT: dict[str, Any] = {
    "model": "m",
    "messages": [
        {"role": "system", "content": [{"type": "text", "text": "x"}]},
        {"role": "developer", "content": "x"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "x"},
                {"type": "image_url", "image_url": {"url": PIXEL, "detail": "low"}},
            ],
        },
        {
            "role": "assistant",
            "content": [{"type": "refusal", "refusal": "no"}],
            "tool_calls": [
                {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
            ],
        },
        {"role": "tool", "content": "x", "tool_call_id": "c"},
        {"role": "function", "name": "f", "content": "x"},
    ],
    "tools": [CHAT_TOOL],
    "tool_choice": {"type": "function", "function": {"name": "f"}},
    "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}},
    "stream": True,
    "stream_options": {"include_usage": True},
}
ALLOWED = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [CHAT_TOOL]}}
TOOL = {"type": "function", "name": "f", "parameters": SCHEMA}
RESPONSE: dict[str, Any] = {
    "model": "m",
    "input": [
        {"role": "user", "content": [{"type": "input_text", "text": "x"}]},
        {"role": "user", "content": [{"type": "input_image", "image_url": PIXEL}]},
        {
            "type": "message",
            "role": "assistant",
            "content": [
                {"type": "output_text", "text": "x", "annotations": []},
                {"type": "refusal", "refusal": "x"},
            ],
        },
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {
            "type": "function_call_output",
            "call_id": "c",
            "output": [{"type": "input_text", "text": "x"}],
        },
        {
            "type": "reasoning",
            "summary": [{"type": "summary_text", "text": "x"}],
            "content": [{"type": "reasoning_text", "text": "x"}],
        },
        {"type": "item_reference", "id": "i"},
    ],
    "tools": [TOOL, {"type": "namespace", "name": "n", "tools": [TOOL]}],
    "tool_choice": {
        "type": "allowed_tools",
        "mode": "auto",
        "tools": [{"type": "function", "name": "f"}],
    },
    "text": {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA}},
    "reasoning": {"effort": "low", "context": "all_turns", "mode": "standard"},
    "conversation": {"id": "conv_1"},
    "background_options": {"completion_window": "soonest"},
    "stream": True,
    "stream_options": {"include_obfuscation": False},
}
COMPLETION = {
    "model": "m",
    "prompt": "x",
    "response_format": {"type": "json_object"},
    "stream": True,
    "stream_options": {"include_usage": True},
}
Check = Callable[[Mapping[str, Any]], None]
BODIES: list[tuple[Check, dict[str, Any]]] = [
    (check_chat, CHAT),
    (check_chat, {**CHAT, "tool_choice": ALLOWED}),
    (check_completion, COMPLETION),
    (check_response, RESPONSE),
    (check_response, {**RESPONSE, "tool_choice": {"type": "function", "name": "f"}}),
]
FREE = {"schema", "parameters"}


def walk(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Each object below a body, with its path; a copy of the body is changed in place."""
    if isinstance(value, dict):
        if path:
            yield path, value
        for key, inner in value.items():
            if key not in FREE:
                yield from walk(inner, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield from walk(inner, f"{path}[{place}]")


CASES = [
    (check, body, path) for check, body in BODIES for path, _ in walk(body)
]  # each object of each body


@pytest.mark.parametrize(("check", "body", "path"), CASES)
def test_an_unknown_key_is_refused_by_its_path(
    check: Check, body: dict[str, Any], path: str
) -> None:
    for value in ("x", 1, 0, False, True, ["x"], {"x": 1}):
        asked = orjson.loads(orjson.dumps(body))
        dict(walk(asked))[path]["nobody_knows"] = value
        with pytest.raises(InvalidRequest) as refused:
            check(asked)
        assert (refused.value.code, refused.value.param) == (
            "unknown_parameter", f"{path}.nobody_knows",
        )  # fmt: skip


@pytest.mark.parametrize(("check", "body"), BODIES)
def test_keys_that_say_nothing_or_are_taken_are_served(check: Check, body: dict[str, Any]) -> None:
    check(body)
    for path, _ in walk(body):
        for key in ("nobody_knows", *TAKEN_KEYS):
            asked = orjson.loads(orjson.dumps(body))
            there = dict(walk(asked))[path]
            there.setdefault(key, None if key == "nobody_knows" else "x")
            check(asked)


def test_every_kind_of_object_is_walked(monkeypatch: pytest.MonkeyPatch) -> None:
    met: set[str] = set()

    class Noted(dict[str, frozenset[str]]):
        def __getitem__(self, kind: str) -> frozenset[str]:
            met.add(kind)
            return super().__getitem__(kind)

    monkeypatch.setattr(objects, "OBJECTS", Noted(OBJECTS))
    for check, body in BODIES:
        check(body)
    of_routes = {"conversation of items", "conversation's metadata", "items"}
    assert set(OBJECTS) - met == of_routes


OFFICIAL: list[tuple[Any, str]] = [
    (chat.ChatCompletionAssistantMessageParam, "assistant"),
    (chat.ChatCompletionSystemMessageParam, "system"),
    (chat.ChatCompletionDeveloperMessageParam, "developer"),
    (chat.ChatCompletionUserMessageParam, "user"),
    (chat.ChatCompletionToolMessageParam, "tool"),
    (chat.ChatCompletionFunctionMessageParam, "function"),
    (chat.ChatCompletionContentPartTextParam, "text part"),
    (chat.ChatCompletionContentPartRefusalParam, "refusal part"),
    (chat.ChatCompletionContentPartImageParam, "image part"),
    (chat.ChatCompletionMessageFunctionToolCallParam, "tool call"),
    (chat.ChatCompletionFunctionToolParam, "tool of chat"),
    (shared_params.FunctionDefinition, "function of chat"),
    (chat.ChatCompletionNamedToolChoiceParam, "tool choice"),
    (chat.ChatCompletionAllowedToolChoiceParam, "allowed choice"),
    (chat.ChatCompletionAllowedToolsParam, "allowed tools"),
    (chat.ChatCompletionStreamOptionsParam, "stream options"),
    (shared_params.ResponseFormatJSONSchema, "schema format"),
    (shared_params.Reasoning, "effort"),
    (responses.EasyInputMessageParam, "message item"),
    (responses.ResponseOutputMessageParam, "message item"),
    (responses.ResponseFunctionToolCallParam, "function_call"),
    (items.FunctionCallOutput, "function_call_output"),
    (responses.ResponseReasoningItemParam, "reasoning"),
    (responses.ResponseInputTextParam, "output part"),
    (responses.ResponseOutputTextParam, "output part"),
    (responses.ResponseInputImageParam, "input_image"),
    (responses.FunctionToolParam, "function tool"),
    (responses.NamespaceToolParam, "namespace tool"),
    (responses.ToolChoiceFunctionParam, "named choice"),
    (responses.ToolChoiceAllowedParam, "allowed_tools"),
    (responses.ResponseTextConfigParam, "text"),
    (responses.ResponseFormatTextJSONSchemaConfigParam, "text schema"),
]


@pytest.mark.parametrize(("params", "kind"), OFFICIAL)
def test_the_official_client_sends_no_key_that_is_unknown(params: Any, kind: str) -> None:
    sent = params.__required_keys__ | params.__optional_keys__
    elsewhere = {"function_call"} if kind == "assistant" else set()  # `api.legacy_functions`'
    assert sent - OBJECTS[kind] - TAKEN_KEYS.keys() - REFUSED_KEYS.keys() == elsewhere


def test_what_is_not_served_says_what_to_do() -> None:
    call = {"id": "a", "type": "custom", "custom": {"name": "f", "input": "x"}}
    for more, param, why in (
        ({"audio": {"id": "a"}}, "audio", "models here answer with text"),
        ({"tool_calls": [call]}, "tool_calls[0].custom", "custom tools are not served"),
    ):
        said = [{"role": "assistant", "content": "x", **more}, {"role": "user", "content": "y"}]
        with pytest.raises(InvalidRequest, match=why) as refused:
            check_chat({"model": "m", "messages": said})
        assert (refused.value.param, refused.value.code) == (
            f"messages[0].{param}",
            "unsupported_parameter",
        )


def test_the_page_lists_what_is_taken() -> None:
    page = (Path(__file__).parents[3] / "docs/engine-fields.md").read_text()
    for key, why in TAKEN_KEYS.items():
        assert f"| `{key}` | {why} |" in page
