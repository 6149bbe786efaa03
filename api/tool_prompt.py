"""Requests with tools, as engines understand them.

An engine with a tool-call parser is given the tools: its model's template shows them to the model,
and the parser finds the calls. For any other engine the tools are told in words, in the system
message, and a grammar holds whatever follows `<tool_call>` to a call of one of them::

    You can call functions. …                           <tool_call>
    {"name": "get_weather", "parameters": {…}}    →     {"name": "get_weather", "arguments": {…}}
    …                                                   </tool_call>

Calls and results of earlier turns are written in the same notation. `api.tool_calls` reads it.

Where the answer has a form too, one grammar says "calls, or the form". Engines have no such grammar
for the notations of their parsers (SGLang lets the form win, and nothing can be called), so such a
request is told in words at every engine. Calls that are forced are the answer: the form is left
out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

import orjson

from api.schemas.held import held
from api.tool_calls import CALL_END_TAG, CALL_TAG, FORM_FIELDS, choice_of, offer_of

_HEAD: Final = "You can call functions. Each line describes one:"
_HOW: Final = f"""\
To call a function, answer with its name and its arguments as JSON:
{CALL_TAG}
{{"name": "NAME", "arguments": {{"ARGUMENT": "VALUE"}}}}
{CALL_END_TAG}
Results come back between <tool_response> tags. Where no function helps, answer"""
_ABOUT_TOOLS: Final = ("tools", "tool_choice", "parallel_tool_calls")
_TOLD: Final = ("name", "description", "parameters", "strict")


def may_call(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The tools of a checked body that its choice leaves to be called."""
    tools: list[dict[str, Any]] = body.get("tools") or []
    choice = body.get("tool_choice")
    if choice == "none" or not tools:
        return []
    if not isinstance(choice, Mapping):
        return tools
    chosen = [choice]
    if choice.get("type") == "allowed_tools":
        chosen = choice["allowed_tools"]["tools"]
    names = {one["function"]["name"] for one in chosen}
    return [tool for tool in tools if tool["function"]["name"] in names]


def with_tools(
    body: dict[str, Any], *, parses: bool, not_held: set[str] | None = None
) -> dict[str, Any]:
    """A chat body in which the engine can do what the caller wants of its tools.

    Args:
        body: A checked body, as far as it may travel.
        parses: The engine has a tool-call parser.
        not_held: Takes the keywords of schemas that the grammar of calls does not hold.
    """
    offer = offer_of(body)
    parses = parses and not (offer is not None and offer.formed)
    if not parses and any(map(tells_of_calls, body["messages"])):
        body = {**body, "messages": _in_words(body["messages"])}
    if body.get("tools"):
        body = {**body, "tools": [_plain(tool) for tool in body["tools"]]}
    tools = may_call(body)
    if offer is None or not tools:
        return body
    choice = body.get("tool_choice")
    form = _form_of(body) if offer.formed else None
    body = {name: value for name, value in body.items() if name not in FORM_FIELDS}
    body["tools"] = tools
    if isinstance(choice, Mapping) and choice.get("type") == "allowed_tools":
        body["tool_choice"] = choice_of(body)
    if parses and offer.forced is None:
        return body
    held_tools = [_held(tool, set() if not_held is None else not_held) for tool in tools]
    if not parses:
        as_json = form is not None and form["type"] == "json_schema"
        body["messages"] = _told(body["messages"], tools, "with JSON" if as_json else "in words")
    if offer.forced is not None:
        rooted = [_rooted(tool) for tool in held_tools]
        if rooted != held_tools:
            # SGLang lifts definitions for this choice alone; only tools that it names are left.
            body["tool_choice"] = "required"
        return {**body, "tools": rooted}
    for name in _ABOUT_TOOLS:
        body.pop(name, None)
    return {**body, "response_format": _call_grammar(held_tools, form, single=offer.single)}


def _form_of(body: Mapping[str, Any]) -> dict[str, Any]:
    """The form of the answer, as a part of a grammar."""
    if body.get("regex"):
        return {"type": "regex", "pattern": body["regex"]}
    if body.get("ebnf"):
        return {"type": "grammar", "grammar": body["ebnf"]}
    schema = body["response_format"].get("json_schema", {}).get("schema", {"type": "object"})
    return {"type": "json_schema", "json_schema": schema}


def _plain(tool: Mapping[str, Any]) -> dict[str, Any]:
    """A tool with what engines read of it; null is unset."""
    function = tool["function"]
    said = {name: function[name] for name in _TOLD if function.get(name) is not None}
    return {"type": "function", "function": said}


def _held(tool: dict[str, Any], not_held: set[str]) -> dict[str, Any]:
    """The tool, its arguments as a grammar can hold them."""
    function = tool["function"]
    if not function.get("parameters"):
        return tool
    schema, missing = held(function["parameters"])
    not_held.update(f"tools.{function['name']}.{path}" for path in missing)
    return {**tool, "function": {**function, "parameters": schema}}


def _rooted(tool: dict[str, Any]) -> dict[str, Any]:
    """The tool, its references true in the one schema that SGLang makes of forced calls.

    There the definitions of all tools are side by side: a whole schema is one, by the tool's name.
    """
    function = tool["function"]
    schema = function.get("parameters") or {}
    if not any("$ref" in part for part in _objects_in(schema)):
        return tool
    root = f"#/$defs/{function['name']}"
    made = _moved(schema, root)
    rooted = {"type": "object", "$ref": root, "$defs": {function["name"]: made}}
    return {**tool, "function": {**function, "parameters": rooted}}


def _objects_in(value: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(value, Mapping):
        yield value
    for inner in value.values() if isinstance(value, Mapping) else value:
        if isinstance(inner, Mapping | list):
            yield from _objects_in(inner)


def _moved(value: Any, root: str) -> Any:
    if isinstance(value, list):
        return [_moved(inner, root) for inner in value]
    if not isinstance(value, Mapping):
        return value
    made = {name: _moved(inner, root) for name, inner in value.items()}
    target = made.get("$ref")
    if isinstance(target, str) and target.startswith("#"):
        made["$ref"] = root + target.removeprefix("#").rstrip("/")
    return made


def _call_grammar(
    tools: Sequence[Mapping[str, Any]], form: dict[str, Any] | None, *, single: bool
) -> dict[str, Any]:
    """Calls of these functions, their arguments by their schemas: in free text, or the form."""
    tags = []
    for tool in tools:
        function = tool["function"]
        name = orjson.dumps(function["name"]).decode()
        # An empty schema would be any JSON; arguments are an object.
        schema = function.get("parameters") or {"type": "object"}
        tags.append(
            {
                "type": "tag",
                "begin": f'{CALL_TAG}\n{{"name": {name}, "arguments": ',
                "content": {"type": "json_schema", "json_schema": schema},
                "end": f"}}\n{CALL_END_TAG}",
            }
        )
    calls = {"tags": tags, "at_least_one": form is not None, "stop_after_first": single}
    if form is None:
        grammar = {"type": "triggered_tags", "triggers": [CALL_TAG], **calls}
    else:
        listed = {"type": "tags_with_separator", "separator": "\n", **calls}
        grammar = {"type": "or", "elements": [listed, form]}
    return {"type": "structural_tag", "format": grammar}


def _told(
    messages: list[dict[str, Any]], tools: Sequence[Mapping[str, Any]], otherwise: str
) -> list[dict[str, Any]]:
    """The messages, the first of which tells of the tools, and how to answer otherwise."""
    lines = [orjson.dumps(_described(tool["function"])).decode() for tool in tools]
    prompt = "\n".join((_HEAD, *lines, f"{_HOW} {otherwise}."))
    first = messages[0]
    if first.get("role") not in ("system", "developer"):
        return [{"role": "system", "content": prompt}, *messages]
    return [{**first, "content": f"{_text_of(first)}\n\n{prompt}"}, *messages[1:]]


def _described(function: Mapping[str, Any]) -> dict[str, Any]:
    names = ("name", "description", "parameters")
    return {name: function[name] for name in names if function.get(name) is not None}


def tells_of_calls(message: Mapping[str, Any]) -> bool:
    """Whether a message is a call or the result of one."""
    return message.get("role") == "tool" or bool(message.get("tool_calls"))


def _in_words(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Calls and results of earlier turns as text; results that follow each other are one turn."""
    said: list[dict[str, Any]] = []
    for is_result, group in groupby(messages, lambda one: one.get("role") == "tool"):
        if is_result:
            results = [f"<tool_response>\n{_text_of(one)}\n</tool_response>" for one in group]
            said.append({"role": "user", "content": "\n".join(results)})
        else:
            said += map(_call_in_words, group)
    return said


def _call_in_words(message: dict[str, Any]) -> dict[str, Any]:
    calls = message.get("tool_calls")
    if not calls:
        return message
    lines = [_text_of(message)] if message.get("content") else []
    for call in calls:
        function = call["function"]
        name = orjson.dumps(function["name"]).decode()
        arguments = function.get("arguments") or "{}"
        lines.append(f'{CALL_TAG}\n{{"name": {name}, "arguments": {arguments}}}\n{CALL_END_TAG}')
    rest = {name: value for name, value in message.items() if name != "tool_calls"}
    return {**rest, "content": "\n".join(lines)}


def _text_of(message: Mapping[str, Any]) -> str:
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "\n".join(str(part.get("text") or part.get("refusal") or "") for part in content)
