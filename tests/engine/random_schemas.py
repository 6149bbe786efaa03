"""Schemas by chance, by a seed: every keyword that is held, alone and beside others, and odd names.

Some cannot be satisfied; the grammar's compiler says so, and makes no answers.
"""

from __future__ import annotations

from random import Random
from typing import Any

NAMES = [
    "a",
    "b",
    "c d",
    "é",
    "a.b",
    "~x",
    "a/b",
    "$ref",
    "%",
    "a\\b",
    'q"',
    "\n",
    "",
    "type",
    "名",
]
NUMBERS = [
    0, 1, -1, 2, 5, 10, -10, 99, 100, -100, 0.5, -0.5, 1.5, 3.0, 255, 7, 1000, 954, 999, 9999,
]  # fmt: skip
ATOMS = [
    "a", "[a-z]", r"\d", r"\w", r"\s", ".", "[^a]", "[A-Z0-9_-]", r"\.", r"\-", "(ab|cd)",
    "(?:x|y)", "é", r"\/", r"[\w.]", r"\S", r"\D", r"[^\s]", "-", r"\\", '["]', r"\t", r"[a\-z]",
    r"[\d]", r"\u0041", r"\x41", "[+*]", r"\+",
]  # fmt: skip
FORMATS = ["date", "date-time", "time", "duration", "email", "ipv4", "ipv6", "uuid", "uri", "regex"]
VALUES: list[Any] = [
    1, 1.0, -0.5, "x", "", 'q"', "\\", "\n", "é", None, True, {"a": 1}, [1, "b"], 1e300, 2**63 - 1,
    2**63, -(2**63), "\u2028", {}, [],
]  # fmt: skip
LEAVES = ["string", "integer", "number", "enum", "const", "boolean"]
KINDS = [*LEAVES, "string", "integer", "object", "array", "anyOf", "oneOf", "allOf", "types", "ref"]


def schema(seed: int) -> dict[str, Any]:
    """The schema of a seed."""
    chance = Random(seed)
    return {**_one(chance, 0), "$defs": {"d": _one(chance, 2)}}


def _one(chance: Random, depth: int) -> dict[str, Any]:
    kind = chance.choice(KINDS if depth < 3 else LEAVES)
    made: dict[str, Any] = _MADE.get(kind, _typed)(chance, depth, kind)
    if chance.random() < 0.1:
        made["title"] = "t"
    return made


def _typed(_: Random, __: int, kind: str) -> dict[str, Any]:
    return {"type": kind}


def _object(chance: Random, depth: int, _: str) -> dict[str, Any]:
    names = chance.sample(NAMES, chance.randint(0, 4))
    made: dict[str, Any] = {"type": "object"}
    made["properties"] = {name: _one(chance, depth + 1) for name in names}
    if chance.random() < 0.4:
        made["required"] = chance.sample(NAMES, chance.randint(0, 3))
    if chance.random() < 0.3:
        made["additionalProperties"] = chance.choice([True, False, {"type": "integer"}])
    return made


def _array(chance: Random, depth: int, _: str) -> dict[str, Any]:
    made: dict[str, Any] = {"type": "array"}
    if chance.random() < 0.7:
        made["items"] = _one(chance, depth + 1)
    if chance.random() < 0.2:
        made["prefixItems"] = [_one(chance, depth + 1) for _ in range(chance.randint(1, 2))]
    for name, most in (("minItems", 2), ("maxItems", 3)):
        if chance.random() < 0.3:
            made[name] = chance.randint(0, most)
    return made


def _string(chance: Random, _: int, __: str) -> dict[str, Any]:
    made: dict[str, Any] = {"type": "string"}
    if chance.random() < 0.5:
        parts = [
            chance.choice(ATOMS) + chance.choice(["", "", "*", "+", "?", "{2}", "{1,3}"])
            for _ in range(chance.randint(1, 4))
        ]
        made["pattern"] = chance.choice(["^", ""]) + "".join(parts) + chance.choice(["$", ""])
    for name, most in (("minLength", 3), ("maxLength", 6)):
        if chance.random() < 0.2:
            made[name] = chance.randint(0, most)
    if chance.random() < 0.15:
        made["format"] = chance.choice(FORMATS)
    return made


def _number(chance: Random, _: int, kind: str) -> dict[str, Any]:
    made: dict[str, Any] = {"type": kind}
    for name in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"):
        if chance.random() < 0.35:
            made[name] = chance.choice(NUMBERS)
    if chance.random() < 0.2:
        made["multipleOf"] = chance.choice([1, 2, 5, 100, 3.0])
    return made


def _values(chance: Random, _: int, kind: str) -> dict[str, Any]:
    if kind == "const":
        return {"const": chance.choice(VALUES)}
    made: dict[str, Any] = {"enum": chance.sample(VALUES, chance.randint(1, 4))}
    if chance.random() < 0.2:
        made["type"] = chance.choice(["string", "integer", "number"])
    return made


def _branches(chance: Random, depth: int, kind: str) -> dict[str, Any]:
    return {kind: [_one(chance, depth + 1) for _ in range(chance.randint(1, 3))]}


def _types(chance: Random, _: int, __: str) -> dict[str, Any]:
    kinds = ["string", "integer", "null", "boolean", "number", "array", "object"]
    made: dict[str, Any] = {"type": chance.sample(kinds, chance.randint(1, 3))}
    if chance.random() < 0.5:
        made["minLength"] = chance.randint(0, 3)
    if chance.random() < 0.5:
        made["minimum"] = chance.choice(NUMBERS)
    return made


def _ref(_: Random, __: int, ___: str) -> dict[str, Any]:
    return {"$ref": "#/$defs/d"}


_MADE: dict[str, Any] = {
    "object": _object, "array": _array, "string": _string, "integer": _number, "number": _number,
    "enum": _values, "const": _values, "anyOf": _branches, "oneOf": _branches, "allOf": _branches,
    "types": _types, "ref": _ref,
}  # fmt: skip
