"""Fields of other servers that have an exact equal here: a body in our words.

    guided_json, structured_outputs.json    → response_format (text.format of a response)
    guided_regex, structured_outputs.regex  → regex
    guided_grammar, structured_outputs.grammar → ebnf
    guided_choice, structured_outputs.choice → ebnf: one of the texts
    reasoning.effort                        → reasoning_effort (a response's own is left)
    enable_thinking, thinking.type          → both switches of chat_template_kwargs
    functions, function_call                → tools and tool_choice (`api.legacy_functions`)
    what an assistant thought               → reasoning_content of its message (`api.thoughts`)

Values are checked here, under the names that were sent; a second word for what is already said is
refused. Parts of such a field that have no equal are refused by name. It runs before the checks of
an endpoint, online and for each row, so nothing behind it knows these names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import orjson

from api import rules
from api.errors import InvalidRequest
from api.legacy_functions import with_functions_as_tools
from api.refused_fields import EMPTY
from api.responses.tools import with_additional_tools
from api.schemas import forms
from api.schemas.forms import check_schema
from api.schemas.limits import MAX_GRAMMAR_CHARS, grammar_refusal
from api.shared_rules import EFFORTS
from api.thoughts import with_thoughts

Body = dict[str, Any]
Put = Callable[[Body, str, Any], None]

MAX_CHOICE_TEXTS: Final = 1024
SCHEMA_NAME: Final = "answer"
"""Schemas have a name at OpenAI; other servers send none."""

_CHAT: Final = "/v1/chat/completions"
_COMPLETIONS: Final = "/v1/completions"
_RESPONSES: Final = "/v1/responses"


def mapped(path: str, body: Body) -> Body:
    """A body of an endpoint in our words; itself where it has no other.

    Raises:
        InvalidRequest: Such a field has a wrong value, or says again what another says.
    """
    if path == _RESPONSES:
        body = with_additional_tools(body)
    elif path == _CHAT:
        body = with_thoughts(with_functions_as_tools(body))
    names = _MAPPED.get(path, {})
    if names.keys().isdisjoint(body):
        return body
    made = {name: value for name, value in body.items() if name not in names}
    for name in names:
        if body.get(name) is not None:
            names[name](made, name, body[name])
    return made


def _say(body: Body, target: str, name: str, value: Any) -> None:
    """Set a field unless it is set to something else."""
    said = body.get(target)
    if said is not None and said != value:
        raise rules.wrong(name, f"cannot be combined with '{target}'")
    body[target] = value


def _as_response_format(body: Body, name: str, value: Any) -> None:
    schema = _schema(name, value)
    inner = {"name": SCHEMA_NAME, "schema": schema}
    _say(body, "response_format", name, {"type": "json_schema", "json_schema": inner})


def _as_text_format(body: Body, name: str, value: Any) -> None:
    made = {"type": "json_schema", "name": SCHEMA_NAME, "schema": _schema(name, value)}
    _put_text_format(body, name, made)


def _put_text_format(body: Body, name: str, made: Mapping[str, Any]) -> None:
    text = body.get("text") or {}
    if type(text) is not dict or text.get("format") not in (None, {"type": "text"}):
        raise rules.wrong(name, "cannot be combined with 'text.format'")
    body["text"] = {**text, "format": made}


def _json_object(body: Body, name: str, value: Any) -> None:
    rules.boolean(name, value)
    _say(body, "response_format", name, {"type": "json_object"})


def _json_object_text(body: Body, name: str, value: Any) -> None:
    rules.boolean(name, value)
    _put_text_format(body, name, {"type": "json_object"})


def _schema(name: str, value: Any) -> Any:
    """A schema, or one as text."""
    if type(value) is str:
        try:
            value = orjson.loads(value)
        except orjson.JSONDecodeError:
            raise rules.wrong(name, "must be a JSON schema") from None
    check_schema(name, value)
    return value


def _as_regex(body: Body, name: str, value: Any) -> None:
    forms.regex(name, value)
    _say(body, "regex", name, value)


def _as_ebnf(body: Body, name: str, value: Any) -> None:
    forms.ebnf(name, value)
    _say(body, "ebnf", name, value)


def _as_choice(body: Body, name: str, value: Any) -> None:
    """A grammar of alternatives: its texts are quoted as those of JSON are."""
    rules.array_of(_choice, min_items=1, max_items=MAX_CHOICE_TEXTS)(name, value)
    grammar = "root ::= " + " | ".join(orjson.dumps(text).decode() for text in value)
    if len(grammar) > MAX_GRAMMAR_CHARS:
        raise rules.wrong(name, f"its texts are too long together, {MAX_GRAMMAR_CHARS} characters")
    if why := grammar_refusal(grammar):
        raise rules.wrong(name, why)
    _say(body, "ebnf", name, grammar)


def _choice(name: str, value: Any) -> None:
    rules.string()(name, value)
    if not value:
        raise rules.wrong(name, "must not be empty")


def _unless_empty(put: Put) -> Put:
    def checked(body: Body, name: str, value: Any) -> None:
        if value not in EMPTY:
            put(body, name, value)

    return checked


def _structured(parts: Mapping[str, Put]) -> Put:
    """An object of which one key says the form of the answer."""

    def put(body: Body, name: str, value: Any) -> None:
        _put_parts(body, name, value, parts)
        if sum(value.get(part) not in EMPTY for part in parts) > 1:
            raise rules.wrong(name, f"may have one of {', '.join(parts)}")

    return put


def _put_parts(body: Body, name: str, value: Any, parts: Mapping[str, Put]) -> None:
    rules.obj(name, value)
    for part, inner in value.items():
        if inner in EMPTY and part not in _MEANT_IF_FALSE:
            continue
        if part not in parts:
            raise InvalidRequest(
                f"'{name}.{part[:64]}' is not supported by this service: only "
                f"{', '.join(parts)} have an equal here.",
                param=f"{name}.{part[:64]}",
                code="unsupported_parameter",
            )
        if inner is not None:
            parts[part](body, f"{name}.{part}", inner)


_MEANT_IF_FALSE: Final = frozenset({"enabled"})


def _effort(body: Body, name: str, value: Any) -> None:
    rules.one_of(*EFFORTS)(name, value)
    _say(body, "reasoning_effort", name, value)


def _switch(body: Body, name: str, value: Any) -> None:
    """Templates know one switch or the other: both are set."""
    rules.boolean(name, value)
    given = body.get("chat_template_kwargs")
    if given is not None:
        rules.obj("chat_template_kwargs", given)
    switches = {"enable_thinking": value, "thinking": value}
    if any((given or {}).get(switch, value) != value for switch in switches):
        raise rules.wrong(name, "cannot be combined with 'chat_template_kwargs'")
    body["chat_template_kwargs"] = {**(given or {}), **switches}


def _thinking_type(body: Body, name: str, value: Any) -> None:
    rules.one_of("enabled", "disabled")(name, value)
    _switch(body, name, value == "enabled")


def _reasoning(body: Body, name: str, value: Any) -> None:
    _put_parts(body, name, value, {"effort": _effort, "enabled": _switch})


def _thinking(body: Body, name: str, value: Any) -> None:
    _put_parts(body, name, value, {"type": _thinking_type})


def _forms(schema: Put, json_object: Put) -> dict[str, Put]:
    parts = {"json": schema, "regex": _as_regex, "grammar": _as_ebnf, "choice": _as_choice}
    guided = {f"guided_{part}": _unless_empty(put) for part, put in parts.items()}
    whole = _structured({**parts, "json_object": json_object})
    return {**guided, "structured_outputs": whole}


_SWITCHES: Final[dict[str, Put]] = {"enable_thinking": _switch, "thinking": _thinking}

_MAPPED: Final[Mapping[str, Mapping[str, Put]]] = {
    _CHAT: {
        **_forms(_as_response_format, _json_object),
        **_SWITCHES,
        "reasoning": _reasoning,
    },
    _COMPLETIONS: _forms(_as_response_format, _json_object),
    _RESPONSES: {**_forms(_as_text_format, _json_object_text), **_SWITCHES},
}
MAPPED_FIELDS: Final = frozenset(name for names in _MAPPED.values() for name in names)
"""All of them, at any endpoint."""
