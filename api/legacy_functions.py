"""`functions` and `function_call`, the older words for tools: read as tools, answered as asked.

    functions: [f]                 → tools: [{"type": "function", "function": f}], one call at most
    function_call: "auto", "none"  → tool_choice
    function_call: {"name": "f"}   → tool_choice: {"type": "function", "function": {"name": "f"}}
    an assistant's function_call   → tool_calls of one call
    role function                  → role tool, the result of the call before it
    a call in the answer           → function_call, finish reason function_call

`functions` stays in the body: by it the reader of the answer knows the words to use
(`api.tool_calls`). It never travels to an engine.
"""

from __future__ import annotations

from typing import Any, Final

from api import rules
from api.objects import only
from api.schemas.forms import check_schema

Body = dict[str, Any]

MAX_FUNCTIONS: Final = 128
_UNSET: Final[tuple[Any, ...]] = (None, [])


def with_functions_as_tools(body: Body) -> Body:
    """A chat body that says tools alone; itself where it does. Wrong shapes are left for checks.

    Raises:
        InvalidRequest: By the name that was sent.
    """
    messages = body.get("messages")
    if type(messages) is list and any(map(_is_older, messages)):
        body = {**body, "messages": _messages(messages)}
    if body.get("functions") in _UNSET and body.get("function_call") is None:
        return body
    made = {name: value for name, value in body.items() if name != "function_call"}
    functions, choice = body.get("functions"), body.get("function_call")
    for name, newer in (("functions", "tools"), ("function_call", "tool_choice")):
        if body.get(name) is not None and body.get(newer) is not None:
            raise rules.wrong(name, f"cannot be combined with '{newer}'")
    if functions in _UNSET:
        raise rules.wrong("function_call", "only allowed when 'functions' are given")
    check_functions("functions", functions)
    made["tools"] = [{"type": "function", "function": one} for one in functions or ()]
    made["parallel_tool_calls"] = False
    if choice is not None:
        made["tool_choice"] = _choice(choice, {one["name"] for one in functions or ()})
    return made


def check_functions(name: str, value: Any) -> None:
    """A list of functions that a call may name."""
    rules.array_of(_function, max_items=MAX_FUNCTIONS)(name, value)


def _function(name: str, value: Any) -> None:
    rules.obj(name, value)
    for key in value:
        if key not in ("name", "description", "parameters"):
            raise rules.wrong(f"{name}.{key[:64]}", "no field of a function", "unknown_parameter")
    rules.string(64)(f"{name}.name", value.get("name"))
    if value.get("description") is not None:
        rules.string()(f"{name}.description", value["description"])
    if value.get("parameters") is not None:
        check_schema(f"{name}.parameters", value["parameters"])


def _choice(value: Any, names: set[str]) -> Any:
    if type(value) is dict:
        rules.string(64)("function_call.name", value.get("name"))
        if value["name"] not in names:
            raise rules.wrong("function_call.name", "names none of 'functions'")
        return {"type": "function", "function": {"name": value["name"]}}
    if value not in ("none", "auto"):
        raise rules.wrong("function_call", "must be none, auto or one function")
    return value


def _is_older(message: Any) -> bool:
    return type(message) is dict and (
        "function_call" in message or message.get("role") == "function"
    )


def _messages(messages: list[Any]) -> list[Any]:
    made, last = [], "call_0"
    for i, message in enumerate(messages):
        if not _is_older(message):
            made.append(message)
            continue
        kept = {name: value for name, value in message.items() if name != "function_call"}
        call = message.get("function_call")
        if call is not None:
            last = f"call_{i}"
            kept["tool_calls"] = [_call(f"messages[{i}]", message, call, last)]
        if message.get("role") == "function":
            rules.string(256)(f"messages[{i}].name", message.get("name"))
            kept |= {"role": "tool", "tool_call_id": last}
        made.append(kept)
    return made


def _call(at: str, message: Body, call: Any, call_id: str) -> Body:
    name = f"{at}.function_call"
    if message.get("role") != "assistant":
        raise rules.wrong(name, "only an assistant's message has one")
    if message.get("tool_calls") not in _UNSET:
        raise rules.wrong(name, "cannot be combined with 'tool_calls'")
    rules.obj(name, call)
    only(name, call, "called function")
    rules.string(64)(f"{name}.name", call.get("name"))
    rules.string()(f"{name}.arguments", call.get("arguments"))
    function = {"name": call["name"], "arguments": call["arguments"]}
    return {"id": call_id, "type": "function", "function": function}
