"""Sizes at which a grammar is not compiled; each limit from both sides."""

from __future__ import annotations

import json
from typing import Any

import pytest

from engine_adapter.sglang import schema_limits as limits
from engine_adapter.sglang.schema_limits import pattern_refusal, schema_refusal


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}, "required": ["a"]}
    return schema


def properties(count: int) -> dict[str, Any]:
    return {"type": "object", "properties": {f"p{i}": {} for i in range(count)}}


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "object", "properties": {"city": {"type": "string", "maxLength": 1000}}},
        properties(limits.MAX_PROPERTIES),
        nested(60),
        {"enum": list(range(limits.MAX_ENUM_VALUES))},
        {"type": "string", "maxLength": limits.MAX_COUNTED_CHARS},
        {"type": "string", "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}$"},
        {"properties": "not an object", "enum": 3, "pattern": 7, "maxLength": "x"},
    ],
)
def test_what_is_let_through(schema: dict[str, Any]) -> None:
    assert schema_refusal(json.dumps(schema)) is None


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (properties(limits.MAX_PROPERTIES + 1), "1000 properties"),
        (nested(100), "64 levels"),
        ({"enum": list(range(limits.MAX_ENUM_VALUES + 1))}, "2000 enum values"),
        ({"maxLength": 15_000, "items": {"minLength": 5_001}}, "add up to more than 20000"),
        ({"maxLength": 1e300}, "add up to more than 20000"),
        ({"items": [{"pattern": "(a{1,40}){1,40}"}]}, "multiply to more than 1000"),
        ({"patternProperties": {"a{2000}": {}}}, "multiply to more than 1000"),
        ({"title": "x" * limits.MAX_SCHEMA_CHARS}, "65536 characters"),
    ],
)
def test_what_is_refused(schema: dict[str, Any], why: str) -> None:
    assert why in (schema_refusal(json.dumps(schema)) or "let through")


def test_parts_are_added_up_over_the_whole_schema() -> None:
    halves = {"a": properties(501), "b": {"not": properties(500)}}
    assert "properties" in (schema_refusal(json.dumps(halves)) or "")


def test_deeper_than_the_parser_reads() -> None:
    assert "levels" in (schema_refusal("[" * 20_000 + "]" * 20_000) or "")


def test_no_json_is_left_to_the_compiler() -> None:
    assert schema_refusal("{nope") is None
    assert schema_refusal("$$ANY$$") is None


@pytest.mark.parametrize(
    "pattern", ["a{1000}", "(a{10}){10,100}", "a{5,}", "a*b+c?", "x" * 1024, "{,5}", "a{0}"]
)
def test_patterns_let_through(pattern: str) -> None:
    assert pattern_refusal(pattern) is None


@pytest.mark.parametrize("pattern", ["a{1001}", "(a{10}){10,101}", "a{99999999999}", "x" * 1025])
def test_patterns_refused(pattern: str) -> None:
    assert pattern_refusal(pattern) is not None
