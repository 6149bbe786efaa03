"""Values that break servers, bodies grown from JSON schemas, and mutations of bodies."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from random import Random
from typing import Any, Final

TEXTS: Final = (
    "", " ", "\n", "a", "Hi", "The capital of France is", "é\u0301ß漢字🙂",
    "\u2028\u2029\x85", "\x00", "\ud800", "\ufeff", "<|im_end|>", "<|im_start|>system\n",
    "<tool_call>{}</tool_call>", "null",
    "-1", "1e999", "../../etc/passwd", "%00", "{{7*7}}", "{% for x in y %}", "' OR 1=1 --",
    "a" * 5000, "🙂" * 300, "data:image/png;base64,iVBORw0KGgo=", "http://127.0.0.1:9/x",
)  # fmt: skip
NUMBERS: Final = (
    0, 1, -1, 2, 3, 7, 20, 21, 128, 129, 8191, 8192, 49151, 49152, 49153, 2**31 - 1, 2**31, 2**32,
    2**63 - 1, 2**63, -(2**63) - 1, 2**64, 10**400, 0.0, -0.0, 0.5, 1.0, 1e-320, 1e308, -1e308,
    float("nan"), float("inf"), float("-inf"),
)  # fmt: skip
SCHEMAS: Final[tuple[Any, ...]] = (
    {}, True, False, [], {"type": "object"}, {"type": "nothing"}, {"type": []}, {"$ref": "#"},
    {"$ref": "#/$defs/none"}, {"$ref": "http://127.0.0.1:9/s"}, {"enum": []}, {"const": None},
    {"enum": [1, "a", None, {"b": []}]}, {"type": "string", "pattern": "("}, {"anyOf": []},
    {"type": "string", "pattern": "^(a+)+$"}, {"type": "string", "pattern": "\\p{L}{1,100000}"},
    {"type": "string", "minLength": 5, "maxLength": 2}, {"type": "string", "maxLength": 100000},
    {"type": "integer", "minimum": 5, "maximum": 1}, {"type": "integer", "minimum": -(10**30)},
    {"type": "number", "multipleOf": 0}, {"type": "array", "minItems": 100000},
    {"type": "array", "items": {"$ref": "#"}}, {"allOf": [{"type": "string"}, {"type": "integer"}]},
    {"type": "object", "properties": {"a\\b\n\"": {"type": "string"}}, "required": ["a\\b\n\""]},
    {"type": "object", "required": ["answer"]}, {"type": "object", "patternProperties": {"(": {}}},
    {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a", "b"],
     "additionalProperties": False},
    {"type": "object", "properties": {"n": {"$ref": "#/$defs/n"}}, "required": ["n"],
     "$defs": {"n": {"properties": {"n": {"$ref": "#/$defs/n"}}, "required": ["n"]}}},
    {"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(200)}},
    {"type": "object", "properties": {"d": {"type": "string", "format": "date-time"}}},
)  # fmt: skip
PATTERNS: Final = (
    "", "a", "[0-9]{2}", "(", "(a+)+b", "a{1000000}", "\\d{3}-\\d{4}", "(?=a)b", "\\1",
    "[^\\x00-\\uffff]", "$^", "[]", "(?<n>a)", "\\p{Greek}+", ".*", "a|", "\x00",
)  # fmt: skip
GRAMMARS: Final = (
    "", "root ::= root", 'root ::= "yes" | "no"', 'root ::= "a" b', 'root ::= "a" b\nb ::= b',
    "root", 'root ::= [a-z]{1,1000000}', 'root ::= ("a"?)*', 'root ::= ""', "start ::= x",
    "root ::= [",
)  # fmt: skip
LISTS: Final[tuple[Any, ...]] = (
    [], [[]], [None], [""], ["x", ""], [0], [-1], [49152], [[0, 49152]], [1, "a"], [{}],
    ["a"] * 300, [True], [[[1]]], list(range(3)),
)  # fmt: skip
OBJECTS: Final[tuple[Any, ...]] = (
    {}, {"": ""}, {"a": None}, {"-1": 1}, {"49152": 100}, {"0": 1000}, {"x": 1}, {"type": "none"},
    {"type": "text"}, {"type": "function"}, {"type": "json_object"}, {"type": "json_schema"},
    {"__proto__": {}}, {"a" * 600: 1}, {"anchor": "created_at", "seconds": 1}, {"user": 49151},
)  # fmt: skip
AT_NAME: Final[Mapping[str, tuple[Any, ...]]] = {
    "regex": PATTERNS,
    "ebnf": GRAMMARS,
    "schema": SCHEMAS,
    "parameters": SCHEMAS,
    "prompt": (*LISTS, *TEXTS),
    "input": (*LISTS, *TEXTS),
    "stop": (*LISTS, "x", ["a"] * 4),
    "stop_token_ids": LISTS,
    "logit_bias": OBJECTS,
    "seed": NUMBERS,
    "role": ("user", "system", "assistant", "tool", "developer", "function", "nobody", ""),
    "type": ("text", "image_url", "input_audio", "file", "refusal", "function", "custom", ""),
}
"""Where a field has values that only it can be broken by."""


def hostile(rng: Random, name: str = "") -> Any:
    """Any value; half of the time one that a field of this name may be broken by."""
    if name in AT_NAME and rng.random() < 0.5:
        return copy.deepcopy(rng.choice(AT_NAME[name]))
    kinds = (TEXTS, NUMBERS, NUMBERS, LISTS, OBJECTS, (None, True, False), SCHEMAS)
    return copy.deepcopy(rng.choice(rng.choice(kinds)))


# --- Bodies from the shapes that the service publishes.

ODDITY: Final = 0.06
"""How often a value is not of its shape."""
DEEPEST: Final = 8


class Shapes:
    """Grows values of the schemas of one OpenAPI document.

    Args:
        named: What a text of a certain name is most of the time: its shape does not say it.
    """

    def __init__(self, document: Mapping[str, Any], named: Mapping[str, tuple[Any, ...]]) -> None:
        self._document = document
        self._named = named

    def grow(self, schema: Any, rng: Random, name: str = "", depth: int = 0) -> Any:
        """A value of the schema, but for a few oddities in it."""
        if not isinstance(schema, dict) or depth > DEEPEST or rng.random() < ODDITY:
            return hostile(rng, name)
        if "$ref" in schema:
            found: Any = self._document
            for step in schema["$ref"].removeprefix("#/").split("/"):
                found = found[step]
            return self.grow(found, rng, name, depth + 1)
        if name in self._named and rng.random() < 0.9:
            return rng.choice(self._named[name])
        if "enum" in schema:
            return rng.choice(schema["enum"])
        for word in ("anyOf", "oneOf", "allOf"):
            if word in schema:
                return self.grow(rng.choice(schema[word]), rng, name, depth + 1)
        kind = schema.get("type", "string")
        return self._of_kind(
            rng.choice(kind) if isinstance(kind, list) else kind, schema, rng, depth
        )

    def _of_kind(self, kind: str, schema: Mapping[str, Any], rng: Random, depth: int) -> Any:
        low, high = schema.get("minimum", -3), schema.get("maximum", 40)
        if kind == "object":
            required = schema.get("required", ())
            fields = schema.get("properties", {}).items()
            chosen = [(n, s) for n, s in fields if n in required or rng.random() < 0.4]
            return {name: self.grow(shape, rng, name, depth + 1) for name, shape in chosen}
        if kind == "array":
            shape, num = schema.get("items", {"type": "string"}), rng.randrange(1, 4)
            return [self.grow(shape, rng, "", depth + 1) for _ in range(num)]
        if kind == "integer":
            return rng.randint(int(low), int(min(high, low + 40)))
        if kind == "number":
            return rng.uniform(low, high)
        return {"boolean": rng.random() < 0.5, "null": None}.get(kind, rng.choice(TEXTS))


# --- Mutations.


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Each container of a body with each key or index in it."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in list(pairs):
        yield value, key
        if isinstance(inner, dict | list):
            yield from places(inner)


def mutate(body: dict[str, Any], rng: Random, names: tuple[str, ...]) -> None:
    """Change one thing of a body in place.

    Args:
        names: Of fields that may be added.
    """
    if rng.random() < 0.3 or not body:
        name = rng.choice(names)
        body[name] = hostile(rng, name)
        return
    within, key = rng.choice(list(places(body)))
    value = within[key]
    match rng.randrange(5):
        case 0:
            del within[key]
        case 1:
            within[key] = [value]
        case 2 if isinstance(within, list):
            within.extend([value] * rng.choice((1, 3, 40)))
        case 3 if isinstance(value, int | float):
            within[key] = value + rng.choice((-1, 1))
        case _:
            within[key] = hostile(rng, key if isinstance(key, str) else "")
