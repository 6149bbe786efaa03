"""The body of a response's creation."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from api import rules
from api.chat_request import MAX_TOOLS, template_kwargs
from api.errors import ApiError, InvalidRequest
from api.objects import only
from api.refused_fields import refuse_fields
from api.responses.items import Item, check_input
from api.responses.tools import NAMESPACE, SKIPPED_TOOLS, flat_name, function_paths, functions
from api.rules import Rule
from api.schemas.forms import check_schema, named_schema
from api.shared_rules import EFFORTS, SHARED

REFUSED: Final = {
    "prompt": "prompt templates are not stored here: send 'input' and 'instructions'",
    "context_management": "contexts are not compacted here: shorten the input",
    "access_programs": "there are no access programs here",
}
"""Fields that would change the answer and are not offered, and what to do instead."""

INCLUDABLE: Final = (
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "message.input_image.image_url",
    "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
    "reasoning.encrypted_content",
    "message.output_text.logprobs",
)
LOGPROBS: Final = "message.output_text.logprobs"

_PASSED: Final = (
    "model", "temperature", "top_p", "top_logprobs", "parallel_tool_calls", "stream", "user",
    "presence_penalty", "frequency_penalty", "stop", "seed", "logit_bias", "top_k", "min_p",
    "min_tokens", "repetition_penalty", "ignore_eos", "skip_special_tokens", "stop_token_ids",
    "regex", "ebnf", "chat_template_kwargs",
)  # fmt: skip
"""Fields that mean in a chat call what they mean here."""

_CHAT_NAMES: Final = {
    "messages": "input",
    "response_format": "text.format",
    "max_completion_tokens": "max_output_tokens",
    "max_tokens": "max_output_tokens",
    "reasoning_effort": "reasoning.effort",
    "functions": "tools",
    "function_call": "tool_choice",
    "verbosity": "text.verbosity",
    "logprobs": "include",
}
_NO_TOOLS: Final = "only allowed when 'tools' are given"
_TOOL: Final = re.compile(r"\btools\[(\d+)\](?:\.function)?")
_QUOTED: Final = re.compile(rf"'({'|'.join(_CHAT_NAMES)})[\w.\[\]]*'")


def check_response(body: Mapping[str, Any]) -> None:
    """Refuse a body that cannot be served.

    Raises:
        InvalidRequest: With the dotted path of the first wrong field as `param`.
    """
    rules.check_fields(body, _FIELDS)
    refuse_fields(body, _SERVED, _CHAT_NAMES)
    for name, instead in REFUSED.items():
        if body.get(name) not in (None, [], {}):
            raise InvalidRequest(
                f"'{name}' is not supported by this service: {instead}.",
                param=name,
                code="unsupported_parameter",
            )
    rules.required(body, "model")
    if body.get("previous_response_id") is None and body.get("conversation") is None:
        rules.required(body, "input")
    elif None not in (body.get("previous_response_id"), body.get("conversation")):
        raise rules.wrong("conversation", "not allowed beside 'previous_response_id'")
    if body.get("stream_options") is not None and not body.get("stream"):
        raise rules.wrong("stream_options", "only allowed when 'stream' is true")
    if body.get("background") and body.get("store") is False:
        raise rules.wrong("background", "only allowed when the response is stored ('store')")
    at_once = body.get("stream") or not body.get("background")
    if at_once and completion_window_of(body) != "soonest":
        raise rules.wrong(
            "background_options.completion_window",
            "only 'soonest' is allowed without 'background', or with 'stream'",
        )
    _check_tool_choice(body)


def completion_window_of(body: Mapping[str, Any]) -> str:
    """By when a checked body's response is to be made in the background."""
    options: Mapping[str, str] = body.get("background_options") or {}
    return options.get("completion_window") or "soonest"


def chat_body(body: Mapping[str, Any], messages: Sequence[Item]) -> dict[str, Any]:
    """The chat call that makes a response.

    Args:
        body: A checked body.
        messages: All of the context, the body's own input included.
    """
    made: dict[str, Any] = {name: body[name] for name in _PASSED if body.get(name) is not None}
    made["messages"] = list(messages)
    if body.get("max_output_tokens") is not None:
        made["max_completion_tokens"] = body["max_output_tokens"]
    tier = body.get("service_tier")
    if tier is not None:
        made["service_tier"] = "flex" if tier == "flex" else "default"
    if wants_logprobs(body):
        made["logprobs"] = True
    else:
        made.pop("top_logprobs", None)
    effort = (body.get("reasoning") or {}).get("effort")
    if effort is not None:
        made["reasoning_effort"] = effort
    text = body.get("text") or {}
    if text.get("verbosity") is not None:
        made["verbosity"] = text["verbosity"]
    chosen = text.get("format") or {"type": "text"}
    if chosen["type"] != "text":
        made["response_format"] = _response_format(chosen)
    tools, choice = _tools(body)
    if tools:
        made["tools"], made["tool_choice"] = tools, choice
    return made


def wants_logprobs(body: Mapping[str, Any]) -> bool:
    """Whether the answer's tokens come with their log probabilities."""
    return LOGPROBS in (body.get("include") or ()) or bool(body.get("top_logprobs"))


def truncates(body: Mapping[str, Any]) -> bool:
    """Whether the beginning of a conversation that is too long may be left out."""
    return body.get("truncation") == "auto"


def renamed(error: ApiError, body: Mapping[str, Any]) -> ApiError:
    """An error about the chat call behind a response, naming the fields that were sent."""
    error.message, error.param = renamed_words(error.message, error.param, body)
    return error


def renamed_words(
    message: str, param: str | None, body: Mapping[str, Any]
) -> tuple[str, str | None]:
    """The words and the param of such an error: a quoted name of a chat call's is this API's."""
    said = _QUOTED.sub(lambda name: f"'{_CHAT_NAMES[name[1]]}'", _tools_renamed(message, body))
    if param is None:
        return said, None
    bare = param.partition(".")[0].partition("[")[0]
    return said, _CHAT_NAMES.get(bare) or _tools_renamed(param, body)


def _tools_renamed(text: str, body: Mapping[str, Any]) -> str:
    """A text about tools of the chat call, by their places in the body."""

    def place(named: re.Match[str]) -> str:
        offered, paths = _offered(body), function_paths(body)
        at = int(named[1])
        return paths[offered[at]] if at < len(offered) else named[0]

    return _TOOL.sub(place, text)


def conversation_id(body: Mapping[str, Any]) -> str | None:
    """The conversation a checked body names."""
    named = body.get("conversation")
    return named["id"] if isinstance(named, dict) else named


def _response_format(chosen: Mapping[str, Any]) -> dict[str, Any]:
    if chosen["type"] == "json_object":
        return {"type": "json_object"}
    kept = ("name", "schema", "strict", "description")
    inner = {name: chosen[name] for name in kept if chosen.get(name) is not None}
    return {"type": "json_schema", "json_schema": inner}


def _tools(body: Mapping[str, Any]) -> tuple[list[Item], Any]:
    """The functions and the choice among them, as a chat call has them."""
    choice = body.get("tool_choice") or "auto"
    if isinstance(choice, dict):
        if choice["type"] == "allowed_tools":
            choice = choice["mode"]
        else:
            name = flat_name(choice["name"], choice.get("namespace"))
            choice = {"type": "function", "function": {"name": name}}
    kept = ("description", "parameters", "strict")
    tools: list[Item] = []
    offered = _offered(body)
    for flat, tool, _ in functions(body):
        if flat in offered:
            said = {key: tool[key] for key in kept if tool.get(key) is not None}
            tools.append({"type": "function", "function": {"name": flat, **said}})
    return tools, choice


def _offered(body: Mapping[str, Any]) -> list[str]:
    """The functions that the chat call has, by the names that a model gets."""
    names = [flat for flat, _, _ in functions(body)]
    choice = body.get("tool_choice")
    if not isinstance(choice, dict) or choice["type"] != "allowed_tools":
        return names
    allowed = {flat_name(tool["name"], tool.get("namespace")) for tool in choice["tools"]}
    return [name for name in names if name in allowed]


def _check_tool_choice(body: Mapping[str, Any]) -> None:
    names = [flat for flat, _, _ in functions(body)]
    if len(set(names)) < len(names) and any(t["type"] == NAMESPACE for t in body["tools"]):
        raise rules.wrong("tools", "two functions have the same name and namespace")
    choice = body.get("tool_choice")
    if choice in (None, "none", "auto"):
        return
    if not names:
        what = "none of the 'tools' is served here" if body.get("tools") else _NO_TOOLS
        raise rules.wrong("tool_choice", what)
    if isinstance(choice, dict):
        wanted = choice["tools"] if choice["type"] == "allowed_tools" else [choice]
        if any(flat_name(tool["name"], tool.get("namespace")) not in names for tool in wanted):
            raise rules.wrong("tool_choice", "names a function that is not among 'tools'")


def _tool(name: str, value: Any) -> None:
    rules.obj(name, value)
    if value.get("type") == NAMESPACE:
        only(name, value, "namespace tool")
        rules.string(64)(f"{name}.name", value.get("name"))
        rules.array_of(_member, max_items=MAX_TOOLS)(f"{name}.tools", value.get("tools"))
    else:
        _member(name, value)


def _member(name: str, value: Any) -> None:
    """A function, or a tool that is skipped."""
    rules.obj(name, value)
    if type(value.get("type")) is str and value["type"] in SKIPPED_TOOLS:
        return
    _function(name, value, "function tool")
    if value.get("description") is not None:
        rules.string()(f"{name}.description", value["description"])
    if value.get("strict") is not None:
        rules.boolean(f"{name}.strict", value["strict"])
    if value.get("parameters") is not None:
        check_schema(f"{name}.parameters", value["parameters"], strict=value.get("strict"))


def _function(name: str, value: Any, keys: str = "named choice") -> None:
    rules.obj(name, value)
    kind = value.get("type")
    rules.string(64)(f"{name}.type", kind)
    if kind != "function":
        raise InvalidRequest(
            f"The tool '{kind}' is not served here: only tools of type 'function' are, which the "
            "caller runs.",
            param=f"{name}.type",
            code="unsupported_tool",
        )
    only(name, value, keys)
    rules.name(f"{name}.name", value.get("name"))
    if value.get("namespace") is not None:
        rules.string(64)(f"{name}.namespace", value["namespace"])


def _tool_choice(name: str, value: Any) -> None:
    if type(value) is str:
        rules.one_of("none", "auto", "required")(name, value)
        return
    rules.obj(name, value)
    if value.get("type") != "allowed_tools":
        _function(name, value)
        return
    only(name, value, "allowed_tools")
    rules.one_of("auto", "required")(f"{name}.mode", value.get("mode"))
    rules.array_of(_function, min_items=1, max_items=MAX_TOOLS)(f"{name}.tools", value.get("tools"))


def _text(name: str, value: Any) -> None:
    rules.obj(name, value)
    only(name, value, "text")
    if value.get("verbosity") is not None:
        rules.one_of("low", "medium", "high")(f"{name}.verbosity", value["verbosity"])
    chosen = value.get("format")
    if chosen is None:
        return
    inner = f"{name}.format"
    rules.obj(inner, chosen)
    rules.one_of("text", "json_object", "json_schema")(f"{inner}.type", chosen.get("type"))
    is_schema = chosen["type"] == "json_schema"
    only(inner, chosen, "text schema" if is_schema else "format")
    if is_schema:
        named_schema(inner, chosen)


def _reasoning(name: str, value: Any) -> None:
    rules.obj(name, value)
    only(name, value, "effort")
    efforts = rules.one_of(*EFFORTS)
    summaries = rules.one_of("auto", "concise", "detailed")
    rules_of = {
        "effort": efforts,
        "summary": summaries,
        "generate_summary": summaries,
        # All reasoning items of the input are told to the model.
        "context": rules.one_of("auto", "all_turns"),
        "mode": rules.one_of("standard"),
    }
    for key, rule in rules_of.items():
        if value.get(key) is not None:
            rule(f"{name}.{key}", value[key])


def _background_options(name: str, value: Any) -> None:
    rules.obj(name, value)
    only(name, value, "background options")
    if value.get("completion_window") is not None:
        rule = rules.one_of("soonest", "2h", "8h")
        rule(f"{name}.completion_window", value["completion_window"])
    if value.get("continuation_id") is not None:
        rules.string(512)(f"{name}.continuation_id", value["continuation_id"])


def _conversation(name: str, value: Any) -> None:
    if type(value) is dict:
        only(name, value, "conversation")
        rules.string(256)(f"{name}.id", value.get("id"))
    else:
        rules.string(256)(name, value)


_SHARED: Final = (
    "model", "temperature", "top_p", "stream", "stream_options", "user", "safety_identifier",
    "metadata", "store", "prompt_cache_key", "presence_penalty", "frequency_penalty", "stop",
    "seed", "logit_bias", "top_k", "min_p", "min_tokens", "repetition_penalty", "ignore_eos",
    "skip_special_tokens", "stop_token_ids", "regex", "ebnf",
)  # fmt: skip

_FIELDS: dict[str, Rule] = {
    **{name: SHARED[name] for name in _SHARED},
    "service_tier": rules.one_of(
        "auto", "default", "flex", "scale", "priority", "fast", "ultrafast"
    ),
    "input": check_input,
    "instructions": rules.string(),
    "max_output_tokens": rules.integer(1),
    "max_tool_calls": rules.integer(1),
    "top_logprobs": rules.integer(0, 20),
    "tools": rules.array_of(_tool, max_items=MAX_TOOLS),
    "tool_choice": _tool_choice,
    "parallel_tool_calls": rules.boolean,
    "text": _text,
    "reasoning": _reasoning,
    "include": rules.array_of(rules.one_of(*INCLUDABLE), max_items=len(INCLUDABLE)),
    "truncation": rules.one_of("auto", "disabled"),
    "background": rules.boolean,
    "background_options": _background_options,
    "previous_response_id": rules.string(256),
    "conversation": _conversation,
    "chat_template_kwargs": template_kwargs,
}
_SERVED: Final = frozenset(_FIELDS) | REFUSED.keys()
