"""JSON schemas of answers: what an engine's grammar holds of them, keyword by keyword.

SGLang compiles a schema with xgrammar, which passes over what it does not know, and is wrong about
some of what it does: a `number` with bounds may be `001`, a `pattern` lets raw quotes into a
string. `KEYWORDS` is the whole table, and docs/api.md the same. A keyword is

    held      as it is, or after a rewrite that allows nothing more
    not held  taken out, and named: in a 400 where the schema is `strict`, else in `x-not-held`
    a note    says nothing of the value

A rewrite may allow less. Keywords that nobody knows are notes, as JSON Schema has it. A test makes
answers by the grammar and compares them with a validator.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from api.errors import InvalidRequest
from api.schemas import integers
from api.schemas.patterns import (
    CHAR,
    COMPILED_FORMATS,
    ESCAPED_IN_JSON,
    FORMAT_PATTERNS,
    OTHER_FORMATS,
    held_pattern,
)

Schema = dict[str, Any]

HELD: Final = "held"
NOT_HELD: Final = "not held"
PARTLY: Final = "partly"

KEYWORDS: Final[Mapping[str, tuple[str, str]]] = {
    "type": (HELD, ""),
    "properties": (PARTLY, "not for names with quotes, backslashes or control characters"),
    "required": (HELD, "a name that is not in `properties` may have any value"),
    "additionalProperties": (HELD, "without it, other names are not allowed"),
    "items": (HELD, "a list of schemas means `prefixItems`"),
    "prefixItems": (PARTLY, "if `minItems` and `maxItems` allow the whole list"),
    "minItems": (HELD, ""),
    "maxItems": (HELD, ""),
    "minLength": (PARTLY, "not together with `pattern` or `format`"),
    "maxLength": (PARTLY, "not together with `pattern` or `format`"),
    "pattern": (PARTLY, "no lookaround, backreferences or word boundaries; it must match the "
                "whole text, which has no escapes"),
    "format": (PARTLY, "date-time, date, time, duration, email, hostname, ipv4, ipv6, uuid, uri; "
               "never 29 February"),
    "minimum": (PARTLY, "integers only; not for over 10,000 integers with the same number of "
                "digits and the same first digit, unless the range has all of these"),
    "maximum": (PARTLY, "as `minimum`"),
    "exclusiveMinimum": (PARTLY, "as `minimum`"),
    "exclusiveMaximum": (PARTLY, "as `minimum`"),
    "enum": (PARTLY, "at least one value, no integers over 64 bits; of the keywords beside it, "
             "only `type` is held"),
    "const": (PARTLY, "as `enum`"),
    "anyOf": (PARTLY, "keywords beside it are not held"),
    "oneOf": (PARTLY, "as `anyOf`; several may match"),
    "allOf": (PARTLY, "with one schema; keywords beside it are not held"),
    "$ref": (PARTLY, "within the schema; keywords beside it are not held"),
    "multipleOf": (PARTLY, "integers with at most 256 multiples between their bounds"),
    "uniqueItems": (NOT_HELD, ""),
    "contains": (NOT_HELD, ""),
    "minContains": (NOT_HELD, ""),
    "maxContains": (NOT_HELD, ""),
    "minProperties": (NOT_HELD, ""),
    "maxProperties": (NOT_HELD, ""),
    "patternProperties": (NOT_HELD, ""),
    "propertyNames": (NOT_HELD, ""),
    "dependentRequired": (NOT_HELD, ""),
    "dependentSchemas": (NOT_HELD, ""),
    "dependencies": (NOT_HELD, ""),
    "unevaluatedProperties": (NOT_HELD, ""),
    "unevaluatedItems": (NOT_HELD, ""),
    "not": (NOT_HELD, ""),
    "if": (NOT_HELD, ""),
    "then": (NOT_HELD, ""),
    "else": (NOT_HELD, ""),
    "$dynamicRef": (NOT_HELD, ""),
    "$recursiveRef": (NOT_HELD, ""),
}  # fmt: skip

_OF_TYPE: Final = {
    "object": ("properties", "required", "additionalProperties"),
    "array": ("items", "prefixItems", "minItems", "maxItems"),
    "string": ("minLength", "maxLength", "pattern", "format"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    "integer": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}
_TYPES: Final = (*_OF_TYPE, "boolean", "null")
_DEFS: Final = ("$defs", "definitions")
_BOUNDS: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
MAX_MULTIPLES: Final = 256


def held(schema: Schema) -> tuple[Schema, list[str]]:
    """What of a schema can be held, and the paths of the keywords that cannot.

    A schema with a keyword of the wrong type is left as it is: the engine cannot compile it.
    """
    walk = _Walk()
    try:
        return walk.schema(schema, ""), walk.missing
    except (TypeError, AttributeError, ValueError, ArithmeticError):
        return schema, []


def check_strict(name: str, schema: Schema) -> None:
    """Refuse a schema of which not everything can be held.

    Raises:
        InvalidRequest: Naming the first such keyword by its path.
    """
    for path in held(schema)[1]:
        raise InvalidRequest(
            f"'{name}.{path}' cannot be held by the engines' grammars: leave it out, or set "
            "'strict' to false.",
            param=f"{name}.{path}",
            code="unsupported_parameter",
        )


class _Walk:
    """One schema from its root.

    Attributes:
        missing: Paths of keywords that are not held.
    """

    def __init__(self) -> None:
        self.missing: list[str] = []

    def inner(self, given: Any, at: str) -> Any:
        """A schema below another; true and false are schemas, too."""
        return self.schema(given, at) if type(given) is dict else given

    def schema(self, given: Schema, at: str) -> Schema:
        """A schema as it can be held."""
        made: Schema = {}
        for name, value in given.items():
            kind = KEYWORDS.get(name)
            if name in _DEFS and type(value) is dict:
                made[name] = {k: self.inner(one, f"{at}{name}.{k}.") for k, one in value.items()}
            elif kind is None:
                if not name.startswith("$"):
                    made[name] = value
            elif kind[0] != NOT_HELD:
                made[name] = _as_count(value) if name in _COUNTS else value
            elif name == "uniqueItems" and value is False:
                continue
            else:
                self.miss(at, name)
        for name, rule in _RULES.items():
            if name in made:
                return rule(self, made, at)
        return self.typed(made, at)

    def miss(self, at: str, *names: str) -> None:
        """Note keywords that are not held."""
        self.missing += [f"{at}{name}" for name in names]

    def without(self, made: Schema, kept: str, at: str, *redundant: str) -> Schema:
        """The one keyword, notes and definitions; its neighbours are not held."""
        others = [name for name in made if name in KEYWORDS and name not in (kept, *redundant)]
        self.miss(at, *others)
        return {name: value for name, value in made.items() if name not in (*others, *redundant)}

    def typed(self, made: Schema, at: str) -> Schema:
        """A schema that says what its values are, by its type."""
        kinds = made.get("type")
        if kinds is None:
            kinds = next((one for one, names in _OF_TYPE.items() if set(names) & set(made)), None)
            if kinds is None:
                return made
        if type(kinds) is list and len(kinds) != 1:
            return self.several(made, kinds, at)
        kind = kinds[0] if type(kinds) is list else kinds
        if type(kind) is not str:
            return made
        made = {**made, "type": kind}
        for name in _about(made):
            if name not in _OF_TYPE.get(kind, ()):
                del made[name]  # about values of another type: it says nothing of this one's
        rule = _BY_TYPE.get(kind)
        return made if rule is None else rule(self, made, at)

    def several(self, made: Schema, kinds: list[Any], at: str) -> Schema:
        """Several types: one of as many schemas."""
        if not kinds or not _about(made):
            return made
        notes = {name: value for name, value in made.items() if name not in KEYWORDS}
        rest = {name: value for name, value in made.items() if name in KEYWORDS}
        return {**notes, "anyOf": [self.typed({**rest, "type": kind}, at) for kind in kinds]}

    def object(self, made: Schema, at: str) -> Schema:
        properties = made.get("properties", {})
        required = made.get("required", [])
        if type(properties) is not dict or type(required) is not list:
            return made
        kept: Schema = {}
        for name, inner in properties.items():
            if ESCAPED_IN_JSON.search(name):
                self.miss(at, f"properties.{name}")
            elif inner is not False:
                kept[name] = self.inner(inner, f"{at}properties.{name}.")
        others = self.inner(made.get("additionalProperties"), f"{at}additionalProperties.")
        for name in required:
            if type(name) is not str or (ESCAPED_IN_JSON.search(name) and name not in properties):
                self.miss(at, "required")
            elif name not in properties and others is not False:
                kept[name] = {} if others in (None, True) else others
        if others is not None:
            made["additionalProperties"] = others
        if "properties" in made or kept:
            made["properties"] = kept
        if "required" in made:
            made["required"] = [name for name in required if name in kept]
            if any(name not in properties and others is False for name in required):
                self.miss(at, "required")
        return made

    def array(self, made: Schema, at: str) -> Schema:
        if type(made.get("items")) is list:
            if prefixed := made.pop("items"):
                made["prefixItems"] = prefixed
            if "additionalItems" in made:
                made["items"] = made.pop("additionalItems")
        made.pop("additionalItems", None)
        prefix = made.get("prefixItems")
        if type(prefix) is list:
            made["prefixItems"] = [
                self.inner(one, f"{at}prefixItems[{i}].") for i, one in enumerate(prefix)
            ]
            if made.get("maxItems", len(prefix)) < len(prefix):
                self.miss(at, "maxItems")
                del made["maxItems"]
        # Without it the compiler takes a least number of items for a contradiction.
        made["items"] = self.inner(made.get("items", True), f"{at}items.")
        return made

    def string(self, made: Schema, at: str) -> Schema:
        kind, pattern = made.pop("format", None), made.pop("pattern", None)
        if kind in OTHER_FORMATS:
            self.miss(at, "format")
        if pattern is not None:
            pattern = held_pattern(pattern)
            if pattern is None:
                self.miss(at, "pattern")
        if kind in FORMAT_PATTERNS or kind in COMPILED_FORMATS:
            if pattern is not None:
                self.miss(at, "format")
            elif kind in COMPILED_FORMATS:
                made["format"] = kind
            else:
                pattern = FORMAT_PATTERNS[kind]
        lengths: Schema = {
            name: made.pop(name) for name in ("minLength", "maxLength") if name in made
        }
        if pattern is not None or "format" in made:
            self.miss(at, *lengths)
        elif all(type(length) is int and length >= 0 for length in lengths.values()):
            if lengths:
                most = lengths.get("maxLength", "")
                pattern = f"^{CHAR}{{{lengths.get('minLength', 0)},{most}}}$"
        else:
            made |= lengths  # no lengths: the engine says so
        return made if pattern is None else {**made, "pattern": pattern}

    def number(self, made: Schema, at: str) -> Schema:
        about = _OF_TYPE["number"]
        self.miss(at, *(name for name in about if name in made))
        return {name: value for name, value in made.items() if name not in about}

    def integer(self, made: Schema, at: str) -> Schema:
        named = [name for name in _BOUNDS if name in made]
        bounds: Schema = {name: made[name] for name in named}
        if not all(type(one) in (int, float) for one in bounds.values()):
            return made
        if "multipleOf" in made:
            return self.multiples(made, bounds, at)
        if not named:
            return made
        rest = {name: value for name, value in made.items() if name not in named}
        ranges = integers.parts(*integers.bounds(bounds))
        if ranges is None:
            self.miss(at, *named)
            return rest
        each = [{"type": "integer", "minimum": low, "maximum": high} for low, high in ranges]
        if len(each) == 1:
            return {**rest, **each[0]}
        del rest["type"]
        return {**rest, "anyOf": each}

    def multiples(self, made: Schema, bounds: Schema, at: str) -> Schema:
        """Few multiples are a list of values; of others no more than the bounds is held."""
        rest = {name: value for name, value in made.items() if name != "multipleOf"}
        factor = made["multipleOf"]
        if factor and (1 / factor).is_integer():
            return self.integer(rest, at)  # every integer is one
        low, high = integers.bounds(bounds)
        first, last = -(-low // factor), high // factor
        if factor != int(factor) or not 0 <= last - first < MAX_MULTIPLES:
            self.miss(at, "multipleOf")
            return self.integer(rest, at)
        values = [place * int(factor) for place in range(int(first), int(last) + 1)]
        kept = {name: value for name, value in rest.items() if name not in (*_BOUNDS, "type")}
        return {**kept, "enum": values}

    def ref(self, made: Schema, at: str) -> Schema:
        target = made["$ref"]
        if type(target) is str and re.fullmatch(r"#(/[^~%]*)?", target):
            return self.without(made, "$ref", at)
        self.miss(at, "$ref")
        return self.schema({name: value for name, value in made.items() if name != "$ref"}, at)

    def values(self, made: Schema, at: str) -> Schema:
        name = "const" if "const" in made else "enum"
        given = [made["const"]] if name == "const" else made["enum"]
        if type(given) is not list:
            return made
        kinds = made.get("type", [])
        kinds = kinds if type(kinds) is list else [kinds]
        kept = [one for one in given if not kinds or any(_is_a(one, kind) for kind in kinds)]
        rest = {one: value for one, value in made.items() if one != name}
        if not kept or not all(map(_fits, kept)):
            self.miss(at, name)
            return self.schema(rest, at)
        return self.without({**rest, "enum": kept}, "enum", at, "type")

    def any_of(self, made: Schema, at: str) -> Schema:
        name = "anyOf" if "anyOf" in made else "oneOf"
        given = made[name]
        rest = {one: value for one, value in made.items() if one != name}
        if type(given) is not list:
            return made
        if not all(type(one) is dict and _says_its_type(one) for one in given):
            self.miss(at, name)
            return self.schema(rest, at)
        if name == "oneOf" and not _differ(given):
            self.miss(at, name)
        branches = [self.schema(one, f"{at}{name}[{i}].") for i, one in enumerate(given)]
        return self.without({**rest, "anyOf": branches}, "anyOf", at)

    def all_of(self, made: Schema, at: str) -> Schema:
        given = made["allOf"]
        rest = {name: value for name, value in made.items() if name != "allOf"}
        is_one = type(given) is list and len(given) == 1 and type(given[0]) is dict
        if is_one and not any(name in KEYWORDS for name in rest):
            return {**rest, **self.schema(given[0], f"{at}allOf[0].")}
        self.miss(at, "allOf")
        return self.schema(rest, at)


_RULES: Final[Mapping[str, Callable[[_Walk, Schema, str], Schema]]] = {
    "$ref": _Walk.ref,
    "const": _Walk.values,
    "enum": _Walk.values,
    "anyOf": _Walk.any_of,
    "oneOf": _Walk.any_of,
    "allOf": _Walk.all_of,
}
_BY_TYPE: Final[Mapping[str, Callable[[_Walk, Schema, str], Schema]]] = {
    "object": _Walk.object,
    "array": _Walk.array,
    "string": _Walk.string,
    "number": _Walk.number,
    "integer": _Walk.integer,
}


_COUNTS: Final = ("minLength", "maxLength", "minItems", "maxItems")
_MOST: Final = 2**31 - 1


def _as_count(value: Any) -> Any:
    """A count that was written as `2.0` or `1e300` as the compiler reads it."""
    is_whole = type(value) is float and value == value // 1
    return int(min(value, _MOST)) if is_whole and value >= 0 else value


def _about(made: Schema) -> list[str]:
    return [name for name in made if any(name in names for names in _OF_TYPE.values())]


def _is_a(value: Any, kind: Any) -> bool:
    if kind == "integer":
        return type(value) is int or (type(value) is float and value.is_integer())
    kinds: dict[type, str] = {
        int: "number", float: "number", str: "string", bool: "boolean", type(None): "null",
        list: "array", dict: "object",
    }  # fmt: skip
    return bool(kinds[type(value)] == kind)


def _fits(value: Any) -> bool:
    """Whether the compiler keeps every number of a value: it has no larger integers."""
    if type(value) is dict:
        return all(map(_fits, value.values()))
    if type(value) is list:
        return all(map(_fits, value))
    return type(value) is not int or -(2**63) <= value < 2**63


def _says_its_type(schema: Schema) -> bool:
    return any(name in schema for name in ("type", "$ref", "enum", "const", "anyOf", "allOf"))


def _differ(branches: list[Schema]) -> bool:
    """Whether no value can be of two branches: their types, or a property's constants, differ."""
    kinds = [one.get("type") for one in branches]
    if all(type(kind) is str for kind in kinds) and len({*kinds}) == len(kinds):
        return not {"integer", "number"} <= {*kinds}
    tags = [_constants(one) for one in branches]
    shared = set.intersection(*map(set, tags)) if tags else set()
    return any(len({tag[name] for tag in tags}) == len(tags) for name in shared)


def _constants(schema: Schema) -> dict[str, str]:
    """The values of required properties that have one alone."""
    found: dict[str, str] = {}
    for name, inner in (schema.get("properties") or {}).items():
        values = [inner["const"]] if type(inner) is dict and "const" in inner else None
        values = inner.get("enum") if values is None and type(inner) is dict else values
        if type(values) is list and len(values) == 1 and name in (schema.get("required") or ()):
            found[name] = repr(values[0])
    return found
