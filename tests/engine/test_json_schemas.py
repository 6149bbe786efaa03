"""The table of keywords says the truth: answers of the grammar, judged by a validator."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.engine import random_schemas

NUM_BY_CHANCE = 300

HELD: list[dict[str, Any]] = [
    {"type": "integer", "minimum": -5},
    {"type": "integer", "minimum": 3},
    {"type": "integer", "minimum": -5, "maximum": 5},
    {"type": "integer", "exclusiveMinimum": 0.5, "exclusiveMaximum": 7.5},
    {"type": "integer", "minimum": -10, "exclusiveMaximum": 40, "multipleOf": 5},
    {"type": "integer", "maximum": 7, "minimum": -7, "multipleOf": 3.0},
    {"type": "integer", "multipleOf": 0.5, "minimum": 3},
    {"required": ["answer"]},
    {"type": "object", "required": ["answer"], "properties": {"b": {"type": "integer"}}},
    {"type": "string", "pattern": "^[^x]+$"},
    {"type": "string", "pattern": "a.b"},
    {"type": "string", "pattern": r"^\S+@\S+$"},
    {"type": "string", "pattern": r"^\W\D\d{3}-\d{4}$"},
    {"type": "string", "pattern": r"^[\w.-]+$"},
    {"type": "string", "format": "date-time"},
    *(
        {"type": "string", "format": name}
        for name in ("date", "time", "ipv4", "ipv6", "uuid", "email", "hostname", "uri", "duration")
    ),
    {"type": "string", "pattern": "^(red|green|(?:dark|light)blue)$"},
    {"type": "string", "pattern": "^a|b$"},
    {"type": "string", "minLength": 2, "maxLength": 4},
    {"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 3},
    {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "null"}], "items": False},
    {
        "type": "array",
        "prefixItems": [{"type": "integer"}],
        "items": {"type": "null"},
        "minItems": 2,
    },
    {"enum": ['a"b\\', "\n", 1, None, {"b": [1]}, 1.5]},
    {"type": "integer", "enum": [1, "a"]},
    {"type": ["string", "null"], "minLength": 1},
    {"type": ["integer", "null"], "minimum": 3},
    {"anyOf": [{"type": "integer", "minimum": 2}, {"type": "null"}]},
    {
        "oneOf": [
            {"type": "object", "properties": {"k": {"const": "a"}}, "required": ["k"]},
            {"type": "object", "properties": {"k": {"const": "b"}}, "required": ["k"]},
        ]
    },
    {"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"type": "integer", "minimum": 0}}},
    {"type": "object", "additionalProperties": {"type": "integer"}},
    {"type": "object", "properties": {"a": {"type": "integer"}, "b": False}},
]
NOT_HELD: list[tuple[dict[str, Any], list[str]]] = [
    (
        {"type": "object", "properties": {"a\\b": {"type": "integer"}}, "required": ["a\\b"]},
        ["properties.a\\b"],
    ),
    (
        {"type": "number", "exclusiveMinimum": 0.1, "exclusiveMaximum": 0.2},
        ["exclusiveMinimum", "exclusiveMaximum"],
    ),
    ({"type": "number", "minimum": 0, "maximum": 1}, ["minimum", "maximum"]),
    ({"type": "integer", "multipleOf": 5}, ["multipleOf"]),
    ({"type": "array", "uniqueItems": True}, ["uniqueItems"]),
    ({"not": {"type": "string"}}, ["not"]),
    ({"type": "object", "if": {}, "then": False}, ["if", "then"]),
    ({"type": "array", "contains": {"type": "integer"}}, ["contains"]),
    ({"enum": []}, ["enum"]),
    ({"type": "object", "anyOf": [{"required": ["a"]}]}, ["anyOf"]),
    ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, ["oneOf"]),
    ({"type": "integer", "minimum": 100000, "maximum": 150000}, ["minimum", "maximum"]),
    ({"type": "integer", "minimum": 2, "exclusiveMaximum": 2}, ["minimum", "exclusiveMaximum"]),
    ({"type": "object", "minProperties": 1}, ["minProperties"]),
    ({"allOf": [{"type": "integer"}, {"minimum": 3}]}, ["allOf"]),
    ({"type": "string", "const": 1}, ["const"]),
    ({"type": "string", "format": "regex"}, ["format"]),
    ({"type": "string", "pattern": "^a+$", "maxLength": 2}, ["maxLength"]),
    ({"type": "string", "pattern": "(?=a)b"}, ["pattern"]),
    ({"type": "string", "pattern": "[!-~]"}, ["pattern"]),
]


@pytest.fixture(scope="module")
def judged(engine_python: Path) -> list[dict[str, Any]]:
    schemas = [*HELD, *(schema for schema, _ in NOT_HELD)]
    lines = "".join(json.dumps(schema) + "\n" for schema in schemas)
    return [json.loads(line) for line in printed(engine_python, "schema_cases.py", lines)]


def printed(engine_python: Path, name: str, lines: str = "") -> list[str]:
    """What a script prints where xgrammar is."""
    script = Path(__file__).with_name(name)
    done = subprocess.run(
        [engine_python, script],
        input=lines,
        env={**os.environ, "PYTHONPATH": str(script.parents[2]), "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()


def test_bounds_of_integers_are_exact(engine_python: Path) -> None:
    (line,) = printed(engine_python, "integer_cases.py")
    num_held, wrong = json.loads(line)
    assert num_held > 200
    assert wrong == []


@pytest.fixture(scope="module")
def by_chance(engine_python: Path) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    schemas = [random_schemas.schema(seed) for seed in range(NUM_BY_CHANCE)]
    printed_lines = printed(engine_python, "schema_cases.py", "\n".join(map(json.dumps, schemas)))
    return [*zip(schemas, map(json.loads, printed_lines), strict=True)]


def test_schemas_by_chance(by_chance: list[tuple[dict[str, Any], dict[str, Any]]]) -> None:
    num_answers = 0
    for schema, one in by_chance:
        if "refused" in one:
            said = one["refused"]
            assert "greater than" in said or "larger than" in said, (schema, said)
            continue
        broken = one["broken"]
        if one["missing"]:
            broken = [said for said in broken if said.startswith("no JSON")]
        else:
            num_answers += one["num_answers"]
        assert broken == [], schema
    assert num_answers > NUM_BY_CHANCE


def test_what_is_held_is_held(judged: list[dict[str, Any]]) -> None:
    for schema, one in zip(HELD, judged, strict=False):
        assert (one["missing"], one["broken"]) == ([], []), schema
        assert one["num_answers"] > 0, schema


def test_what_is_not_held_is_named_and_answers_are_json(judged: list[dict[str, Any]]) -> None:
    for (schema, paths), one in zip(NOT_HELD, judged[len(HELD) :], strict=True):
        assert one["missing"] == paths, schema
        assert [said for said in one["broken"] if said.startswith("no JSON")] == [], schema
