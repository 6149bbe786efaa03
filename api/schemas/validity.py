"""Whether a JSON schema is one: each keyword's value has the type that the keyword needs.

Engines say so too, of some keywords and in words of their own: by the path of the keyword it is
said here, for answers and tools alike. What no keyword of JSON Schema is may have any value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from api.errors import InvalidRequest

TYPES: Final = ("object", "array", "string", "number", "integer", "boolean", "null")


def check_valid(name: str, schema: Any) -> None:
    """Refuse what is no JSON schema.

    Raises:
        InvalidRequest: Naming the first keyword whose value is none.
    """
    todo: list[tuple[str, Any]] = [(name, schema)]
    references: dict[str, str] = {}
    has_bases = False
    while todo:
        path, given = todo.pop()
        if type(given) is bool:
            continue
        if type(given) is not dict:
            raise _wrong(path, "a schema: an object, true or false")
        for keyword, value in given.items():
            at = f"{path}.{keyword}"
            if keyword in _VALUES:
                fits, wanted = _VALUES[keyword]
                if not fits(value):
                    raise _wrong(at, wanted)
            elif keyword in _BELOW:
                todo += _BELOW[keyword](at, value)
        _check_bounds(path, given)
        references[path] = given.get("$ref", "#")
        has_bases = has_bases or ("$id" in given and given is not schema)
    for path, target in references.items():
        if _INSIDE.fullmatch(target) and not has_bases and not _leads_somewhere(schema, target):
            raise _wrong(f"{path}.$ref", "a place in this schema")


_INSIDE: Final = re.compile(r"#(/[^~%]*)?")


def _check_bounds(path: str, given: Mapping[str, Any]) -> None:
    """Nothing is at least 5 and at most 2."""
    for low, high in _BOUNDS:
        if low in given and high in given and given[low] > given[high]:
            raise _wrong(f"{path}.{low}", f"'{high}' at most")


_BOUNDS: Final = (
    ("minLength", "maxLength"),
    ("minItems", "maxItems"),
    ("minProperties", "maxProperties"),
    ("minContains", "maxContains"),
    ("minimum", "maximum"),
)


def _leads_somewhere(root: Any, target: str) -> bool:
    found = root
    for part in target.removeprefix("#").split("/")[1:]:
        if type(found) is dict and part in found:
            found = found[part]
        elif type(found) is list and part.isdecimal() and int(part) < len(found):
            found = found[int(part)]
        else:
            return False
    return True


def _wrong(path: str, wanted: str) -> InvalidRequest:
    return InvalidRequest(
        f"Invalid value for '{path}': must be {wanted}.", param=path, code="invalid_value"
    )


Below = list[tuple[str, Any]]


def _one(at: str, value: Any) -> Below:
    return [(at, value)]


def _named(at: str, value: Any) -> Below:
    if type(value) is not dict:
        raise _wrong(at, "an object of schemas")
    return [(f"{at}.{name}", one) for name, one in value.items()]


def _listed(at: str, value: Any) -> Below:
    if type(value) is not list or not value:
        raise _wrong(at, "an array of schemas, one at least")
    return [(f"{at}[{place}]", one) for place, one in enumerate(value)]


def _items(at: str, value: Any) -> Below:
    if type(value) is not list:
        return _one(at, value)
    return [(f"{at}[{place}]", one) for place, one in enumerate(value)]


_BELOW: Final[Mapping[str, Callable[[str, Any], Below]]] = {
    **dict.fromkeys(
        ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas"), _named
    ),
    **dict.fromkeys(("anyOf", "oneOf", "allOf", "prefixItems"), _listed),
    **dict.fromkeys(
        (
            "additionalProperties", "unevaluatedProperties", "unevaluatedItems", "contains",
            "propertyNames", "not", "if", "then", "else",
        ),
        _one,
    ),
    "items": _items,
}  # fmt: skip
"""Keywords with schemas below them."""


def _is_type(value: Any) -> bool:
    kinds = value if type(value) is list else [value]
    return bool(kinds) and all(type(one) is str and one in TYPES for one in kinds)


def _is_names(value: Any) -> bool:
    return (
        type(value) is list
        and all(type(one) is str for one in value)
        and len({*value}) == len(value)
    )


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)


def _is_count(value: Any) -> bool:
    return _is_number(value) and value >= 0 and value == value // 1


_A_NUMBER: Final = (_is_number, "a number")
_A_COUNT: Final = (_is_count, "a whole number that is not negative")
_A_TEXT: Final = (lambda value: type(value) is str, "a string")
_A_CHOICE: Final = (lambda value: type(value) is bool, "true or false")
_AN_ARRAY: Final = (lambda value: type(value) is list, "an array")

_VALUES: Final[Mapping[str, tuple[Callable[[Any], bool], str]]] = {
    "type": (_is_type, f"one or more of {', '.join(TYPES)}"),
    "required": (_is_names, "an array of different strings"),
    "dependentRequired": (
        lambda value: type(value) is dict and all(map(_is_names, value.values())),
        "an object of arrays of different strings",
    ),
    "enum": _AN_ARRAY,
    "examples": _AN_ARRAY,
    "multipleOf": (lambda value: _is_number(value) and value > 0, "a number over 0"),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _A_NUMBER),
    **dict.fromkeys(
        (
            "minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties",
            "minContains", "maxContains",
        ),
        _A_COUNT,
    ),
    **dict.fromkeys(
        (
            "pattern", "format", "$ref", "$dynamicRef", "$recursiveRef", "$schema", "$id",
            "$comment", "title", "description", "contentEncoding", "contentMediaType",
        ),
        _A_TEXT,
    ),
    **dict.fromkeys(("uniqueItems", "deprecated", "readOnly", "writeOnly"), _A_CHOICE),
}  # fmt: skip
