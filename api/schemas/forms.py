"""Rules about the fields that ask for a form of the answer, and about schemas of tools."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from api import rules
from api.objects import only
from api.rules import Rule, wrong
from api.schemas.held import check_strict, held
from api.schemas.limits import (
    MAX_GRAMMAR_CHARS,
    MAX_PATTERN_CHARS,
    grammar_refusal,
    pattern_refusal,
    schema_excess,
)
from api.schemas.validity import check_valid

MAX_NODES: Final = 2_000
MAX_DEPTH: Final = 32

_NUL: Final = "\0"
"""A compiler of grammars cuts a pattern there, and ends its engine where nothing is left of it."""
_NO_NUL: Final = "must not have the character U+0000: write it as an escape"


def _compiled(max_chars: int, refusal: Callable[[str], str | None]) -> Rule:
    """A text that the engine's compiler is not too busy with."""

    def rule(name: str, value: Any) -> None:
        rules.string(max_chars)(name, value)
        why = _NO_NUL if _NUL in value else refusal(value)
        if why is not None:
            raise wrong(name, why)

    return rule


regex: Final = _compiled(MAX_PATTERN_CHARS, pattern_refusal)
ebnf: Final = _compiled(MAX_GRAMMAR_CHARS, grammar_refusal)


def check_schema(name: str, value: Any, *, strict: bool | None = False) -> None:
    """A JSON schema that can be compiled, and held as a whole where it is strict."""
    rules.obj(name, value)
    _check_size(name, value)
    check_valid(name, value)
    excess = schema_excess(held(value)[0])
    if excess is not None:
        raise wrong(f"{name}{excess[0]}", excess[1])
    if strict:
        check_strict(name, value)


def _check_size(name: str, value: Any) -> None:
    """Level by level, as nobody knows yet how deep it is."""
    level: list[Any] = [value]
    nodes = depth = 0
    while level:
        nodes += len(level)
        depth += 1
        if nodes > MAX_NODES or depth > MAX_DEPTH:
            raise wrong(name, f"may have {MAX_DEPTH} levels and {MAX_NODES} values at most")
        below: list[Any] = []
        for node in level:
            if type(node) is dict:
                _check_patterns(name, node)
                below.extend(node.values())
            elif type(node) is list:
                below.extend(node)
        level = below


def _check_patterns(name: str, schema: Mapping[str, Any]) -> None:
    named = schema.get("patternProperties")
    patterns = [schema.get("pattern"), *(named if type(named) is dict else ())]
    if any(type(one) is str and _NUL in one for one in patterns):
        raise wrong(name, f"its patterns {_NO_NUL}")


def response_format(name: str, value: Any) -> None:
    """Text, any JSON object, or JSON of a schema (row C-20)."""
    rules.obj(name, value)
    rules.one_of("text", "json_object", "json_schema")(f"{name}.type", value.get("type"))
    if value["type"] != "json_schema":
        for inner in ("schema", "json_schema"):
            if value.get(inner) is not None:
                raise wrong(f"{name}.{inner}", "only allowed when the type is 'json_schema'")
        only(name, value, "format")
        return
    if value.get("schema") is not None:
        raise wrong(f"{name}.schema", "must be inside 'json_schema'")
    only(name, value, "schema format")
    inner, chosen = f"{name}.json_schema", value.get("json_schema")
    rules.obj(inner, chosen)
    only(inner, chosen, "named schema")
    named_schema(inner, chosen)


def named_schema(name: str, value: Mapping[str, Any]) -> None:
    """The schema of an answer, its name, and what is said of it."""
    rules.string(64)(f"{name}.name", value.get("name"))
    if value.get("description") is not None:
        rules.string()(f"{name}.description", value["description"])
    if value.get("strict") is not None:
        rules.boolean(f"{name}.strict", value["strict"])
    check_schema(f"{name}.schema", value.get("schema"), strict=value.get("strict"))


def check_one_form(body: Mapping[str, Any]) -> None:
    """Refuse a second form: the engine holds an answer to one."""
    asked = (body.get("response_format") or {}).get("type", "text") != "text"
    forms = ["response_format"] if asked else []
    forms += [name for name in ("regex", "ebnf") if body.get(name)]
    if len(forms) > 1:
        raise wrong(forms[1], f"cannot be combined with '{forms[0]}'")
