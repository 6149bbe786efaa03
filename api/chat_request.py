"""The body of a chat completion request (rows C-09 to C-25)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from api import images, rules
from api.legacy_functions import check_functions
from api.objects import only
from api.rules import Rule
from api.schemas.forms import check_schema
from api.shared_rules import EFFORTS, SHARED, check_shared
from api.tool_calls import choice_of

ROLES = ("developer", "system", "user", "assistant", "tool", "function")
MAX_TOOLS = 128

_TEXT_PARTS = frozenset({"text", "refusal"})


def check_chat(body: Mapping[str, Any]) -> None:
    """Refuse a body that no engine could serve.

    Raises:
        InvalidRequest: With the dotted path of the first wrong field as `param`.
    """
    rules.check_fields(body, _FIELDS)
    check_shared(body, _FIELDS, _OTHER_NAMES)
    rules.required(body, "messages")
    images.check_number(body)
    if body.get("top_logprobs") is not None and not body.get("logprobs"):
        raise rules.wrong("top_logprobs", "only allowed when 'logprobs' is true")
    _check_tool_choice(body)


_OTHER_NAMES: Final = {
    "input": "messages",
    "prompt": "messages",
    "max_output_tokens": "max_completion_tokens",
}


def _messages(name: str, value: Any) -> None:
    if type(value) is not list:
        raise rules.wrong_type(name, "an array of messages")
    if not value:
        raise rules.wrong(name, "must have at least one message", "empty_array")
    for i, message in enumerate(value):
        _message(f"{name}[{i}]", message)


def _message(name: str, value: Any) -> None:
    rules.obj(name, value)
    role = value.get("role")
    rules.one_of(*ROLES)(f"{name}.role", role)
    only(name, value, role)
    if value.get("name") is not None:
        rules.string(256)(f"{name}.name", value["name"])
    for text in ("refusal", "reasoning_content"):
        if value.get(text) is not None:
            rules.string()(f"{name}.{text}", value[text])
    if value.get("tool_calls") is not None:
        rules.array_of(_tool_call, max_items=MAX_TOOLS)(f"{name}.tool_calls", value["tool_calls"])
    if value.get("tool_call_id") is not None:
        rules.string(256)(f"{name}.tool_call_id", value["tool_call_id"])
    content = value.get("content")
    if type(content) is str:
        return
    if content is None:
        if role == "assistant":
            return
        raise rules.wrong_type(f"{name}.content", "a string or an array of parts")
    part = _user_part if role == "user" else _part
    rules.array_of(part, min_items=1)(f"{name}.content", content)


def _user_part(name: str, value: Any) -> None:
    """Text or an image; whether the model reads images is asked of its engine."""
    if type(value) is dict and value.get("type") == images.IMAGE_PART:
        only(name, value, "image part")
        images.check_image(f"{name}.{images.IMAGE_PART}", value.get(images.IMAGE_PART))
    else:
        _part(name, value)


def _part(name: str, value: Any) -> None:
    rules.obj(name, value)
    kind = value.get("type")
    if type(kind) is not str:
        raise rules.wrong_type(f"{name}.type", "a string")
    if kind not in _TEXT_PARTS:
        raise rules.wrong(f"{name}.type", "this model reads text parts only", "unsupported_content")
    only(name, value, f"{kind} part")
    rules.string()(f"{name}.{kind}", value.get(kind))


def _function(name: str, value: Any, kind: str = "chosen function") -> None:
    rules.obj(name, value)
    function = value.get("function")
    rules.obj(f"{name}.function", function)
    only(f"{name}.function", function, kind)
    rules.name(f"{name}.function.name", function.get("name"))


def _called(name: str, value: Any) -> None:
    rules.obj(name, value)
    only(name, value, "called function")
    rules.string(64)(f"{name}.name", value.get("name"))
    rules.string()(f"{name}.arguments", value.get("arguments"))


def _tool_call(name: str, value: Any) -> None:
    rules.obj(name, value)
    only(name, value, "tool call")
    if value.get("type") is not None:
        rules.one_of("function")(f"{name}.type", value["type"])
    if value.get("id") is not None:
        rules.string(256)(f"{name}.id", value["id"])
    _called(f"{name}.function", value.get("function"))


def _tool(name: str, value: Any) -> None:
    rules.obj(name, value)
    if value.get("type") == "custom":
        what = "custom tools are not served: give a function with one string parameter"
        raise rules.wrong(f"{name}.type", what, "unsupported_parameter")
    rules.one_of("function")(f"{name}.type", value.get("type"))
    only(name, value, "tool of chat")
    _function(name, value, "function of chat")
    function = value["function"]
    if function.get("description") is not None:
        rules.string()(f"{name}.function.description", function["description"])
    if function.get("strict") is not None:
        rules.boolean(f"{name}.function.strict", function["strict"])
    parameters = function.get("parameters")
    if parameters is not None:
        check_schema(f"{name}.function.parameters", parameters, strict=function.get("strict"))


def _tool_choice(name: str, value: Any) -> None:
    if type(value) is dict:
        rules.one_of("function", "allowed_tools")(f"{name}.type", value.get("type"))
        if value["type"] == "function":
            only(name, value, "tool choice")
            _function(name, value)
        else:
            only(name, value, "allowed choice")
            _allowed_tools(f"{name}.allowed_tools", value.get("allowed_tools"))
    elif value not in ("none", "auto", "required"):
        raise rules.wrong(name, "must be none, auto, required or one function")


def _allowed_tools(name: str, value: Any) -> None:
    rules.obj(name, value)
    only(name, value, "allowed tools")
    rules.one_of("auto", "required")(f"{name}.mode", value.get("mode"))
    rules.array_of(_allowed, min_items=1, max_items=MAX_TOOLS)(f"{name}.tools", value.get("tools"))


def _allowed(name: str, value: Any) -> None:
    """One function: named, or given whole once more."""
    rules.obj(name, value)
    only(name, value, "tool choice")
    _function(name, value, "function of chat")


_TEMPLATE_KWARGS = frozenset({"enable_thinking", "thinking"})


def template_kwargs(name: str, value: Any) -> None:
    """Switches of known templates only: other arguments could replace the template itself."""
    rules.obj(name, value)
    for argument, switch in value.items():
        if argument not in _TEMPLATE_KWARGS:
            allowed = ", ".join(sorted(_TEMPLATE_KWARGS))
            raise rules.wrong(name, f"only {allowed} can be set", "unsupported_parameter")
        rules.boolean(f"{name}.{argument}", switch)


def _check_tool_choice(body: Mapping[str, Any]) -> None:
    choice = body.get("tool_choice")
    tools = body.get("tools") or []
    if choice in (None, "none", "auto"):
        return
    if not tools:
        raise rules.wrong("tool_choice", "only allowed when 'tools' are given")
    if type(choice) is dict:
        named = [choice] if choice["type"] == "function" else choice["allowed_tools"]["tools"]
        known = {tool["function"]["name"] for tool in tools}
        if any(one["function"]["name"] not in known for one in named):
            raise rules.wrong("tool_choice", "names a function that is not among 'tools'")
    if body.get("logprobs") and choice_of(body) != "auto":
        raise rules.wrong("logprobs", "a call that is forced has none", "unsupported_parameter")


_FIELDS: dict[str, Rule] = {
    **SHARED,
    "messages": _messages,
    "max_completion_tokens": rules.integer(1),
    "logprobs": rules.boolean,
    "top_logprobs": rules.integer(0, 20),
    "tools": rules.array_of(_tool, max_items=MAX_TOOLS),
    "tool_choice": _tool_choice,
    "functions": check_functions,
    "parallel_tool_calls": rules.boolean,
    "reasoning_effort": rules.one_of(*EFFORTS),
    "verbosity": rules.one_of("low", "medium", "high"),
    "chat_template_kwargs": template_kwargs,
    "continue_final_message": rules.boolean,
    "separate_reasoning": rules.boolean,
}
