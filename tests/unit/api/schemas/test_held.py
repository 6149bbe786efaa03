"""Schemas: what cannot be held is named by its path, everywhere, and the page has the table."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.chat_request import check_chat
from api.errors import InvalidRequest
from api.responses.request import check_response
from api.schemas.held import KEYWORDS, NOT_HELD, held
from api.schemas.patterns import FORMAT_PATTERNS, held_pattern

BARE = {"type": "object", "properties": {"a": {"type": "array", "items": {"multipleOf": 5}}}}
PATH = "properties.a.items.multipleOf"
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*KEYWORDS, "$defs", "x", 'a"b']), inner, max_size=4)
    ),
)
CHAT: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


@pytest.mark.parametrize("name", [name for name, (how, _) in KEYWORDS.items() if how == NOT_HELD])
def test_a_keyword_that_is_not_held_is_taken_out_and_named(name: str) -> None:
    made, missing = held({"type": "object", "properties": {"a": {"type": "string", name: 1}}})
    assert made == {"type": "object", "properties": {"a": {"type": "string"}}}
    assert missing == [f"properties.a.{name}"]


@pytest.mark.parametrize(
    ("schema", "made", "missing"),
    [
        ({"minimum": -7, "exclusiveMaximum": 9, "multipleOf": 3}, {"enum": [-6, -3, 0, 3, 6]}, []),
        ({"maximum": 4, "minimum": 1, "multipleOf": 2.0}, {"enum": [2, 4]}, []),
        ({"multipleOf": 0.25}, {"type": "integer"}, []),
        ({"multipleOf": 5}, {"type": "integer"}, ["multipleOf"]),
        ({"minimum": 1, "maximum": 2, "multipleOf": 3}, None, ["multipleOf"]),
        ({"minimum": 1, "maximum": 2, "multipleOf": 1.5}, None, ["multipleOf"]),
        ({"minimum": 1, "maximum": 257, "multipleOf": 1e-320}, None, ["multipleOf"]),
        ({"enum": [1, 2**63]}, {"type": "integer"}, ["enum"]),
    ],
)
def test_integers(schema: dict[str, Any], made: dict[str, Any] | None, missing: list[str]) -> None:
    found, told = held({"type": "integer", **schema})
    assert told == missing
    assert made is None or found == made


def test_arrays_have_items() -> None:
    """Without, the compiler takes a least number of items for a contradiction."""
    without: tuple[dict[str, object], ...] = ({}, {"items": []})
    for items in without:
        assert held({"type": "array", "minItems": 1, **items})[0] == {
            "type": "array", "minItems": 1, "items": True,
        }  # fmt: skip


@given(st.dictionaries(st.sampled_from([*KEYWORDS]), JSON, max_size=4))
def test_any_schema_is_walked(schema: dict[str, Any]) -> None:
    before = repr(schema)
    made, missing = held(schema)
    assert repr(schema) == before, "the caller's is left alone"
    assert isinstance(made, dict)
    assert all(isinstance(path, str) for path in missing)


@pytest.mark.parametrize("strict", [True, False, None])
def test_strict_is_refused_by_the_path(strict: bool | None) -> None:
    named = {"name": "n", "schema": BARE, "strict": strict}
    text = {"format": {"type": "json_schema", **named}}
    function = {"name": "f", "parameters": BARE, "strict": strict}
    cases = [
        (
            check_chat,
            {**CHAT, "response_format": {"type": "json_schema", "json_schema": named}},
            "response_format.json_schema.schema",
        ),
        (
            check_chat,
            {**CHAT, "tools": [{"type": "function", "function": function}]},
            "tools[0].function.parameters",
        ),
        (check_response, {"model": "m", "input": "x", "text": text}, "text.format.schema"),
        (
            check_response,
            {"model": "m", "input": "x", "tools": [{"type": "function", **function}]},
            "tools[0].parameters",
        ),
    ]
    for check, body, param in cases:
        if not strict:
            check(body)
            continue
        with pytest.raises(InvalidRequest) as refused:
            check(body)
        assert refused.value.param == f"{param}.{PATH}"
        assert refused.value.code == "unsupported_parameter"


@pytest.mark.parametrize(
    ("pattern", "made"),
    [
        ("^a+$", "^a+$"),
        ("a.b", r'^a[^"\\\x00-\x1f]b$'),
        (r"^(?:a|b)\d{2}$", "^(?:a|b)[0-9]{2}$"),
        (r"(a|b)\d", "^(a|b)[0-9]$"),
        ("^(red|green|(?:dark|light)blue)$", "^(red|green|(?:dark|light)blue)$"),
        ("^a|b$", "^(?:a|b)$"),
        (r"^a$|^\|b$|c", r"^(?:a|\|b|c)$"),
        ("[|]a|b", "^(?:[|]a|b)$"),
        ("(^a|b)$", None),
        ("a$b|c", None),
        ("[^x]", r'^[^"\\\x00-\x1fx]$'),
        *((bad, None) for bad in ('a"b', r"\\", r"\n", "(?=a)", r"\ba", r"(a)\1", "[ -~]", "é[é]")),
    ],
)
def test_patterns(pattern: str, made: str | None) -> None:
    assert held_pattern(pattern) == made


def test_the_page_has_the_table() -> None:
    page = (Path(__file__).parents[4] / "docs/api.md").read_text()
    not_held = page.partition("\nNot held: ")[2].partition(".\n")[0]
    for name, (how, why) in KEYWORDS.items():
        if how == NOT_HELD:
            assert f"`{name}`" in not_held
        else:
            assert f"| `{name}` | {how} | {why} |" in page


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("date", ["2024-01-31", "0001-02-28", "1999-11-30"],
         ["0000-01-01", "2023-02-29", "2000-06-31", "2000-13-01", "99-01-01", "2000-1-1"]),
        ("time", ["00:00:00Z", "23:59:59.123+14:00"], ["24:00:00Z", "12:60:00Z", "12:00:60Z",
         "12:00:00", "12:00Z"]),
        ("date-time", ["2024-01-31T00:00:00Z", "2024-12-01T23:59:59.5-08:00"],
         ["2000-06-31T00:00:00Z", "2024-01-31 00:00:00Z", "2024-01-31T00:00:00"]),
        ("ipv4", ["0.0.0.0", "255.249.199.10"], ["256.1.1.1", "01.1.1.1", "1.1.1", "1.1.1.1.1"]),
    ],
)  # fmt: skip
def test_formats_that_are_patterns(name: str, good: list[str], bad: list[str]) -> None:
    pattern = FORMAT_PATTERNS[name]
    assert held({"type": "string", "format": name}) == ({"type": "string", "pattern": pattern}, [])
    assert held_pattern(pattern) == pattern  # it needs no escapes
    assert [one for one in good if not re.fullmatch(pattern, one)] == []
    assert [one for one in bad if re.fullmatch(pattern, one)] == []


def test_a_pattern_is_held_before_a_format() -> None:
    schema = {"type": "string", "format": "date", "pattern": "^2"}
    assert held(schema) == ({"type": "string", "pattern": "^2$"}, ["format"])
    unheld = {"type": "string", "format": "date", "pattern": "(?=2)"}
    assert held(unheld)[1] == ["pattern"]
    assert held(unheld)[0]["pattern"] == FORMAT_PATTERNS["date"]


def test_counts_may_be_written_as_floats() -> None:
    schema = {"type": "array", "items": {"type": "string", "maxLength": 2.0}, "maxItems": 1e300}
    assert held(schema)[0]["maxItems"] == 2**31 - 1
    assert held(schema)[0]["items"]["pattern"].endswith("{0,2}$")
