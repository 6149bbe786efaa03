"""Ranges of integers in parts: together they are the range, and a grammar holds each."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.schemas.held import held
from api.schemas.integers import LEAST, MOST, bounds, parts


@given(st.integers(LEAST, MOST), st.integers(0, 20_000) | st.integers(0, MOST))
def test_the_parts_are_the_range_and_each_is_one_that_a_grammar_holds(low: int, span: int) -> None:
    made = parts(low, min(low + span, MOST))
    if made is None:
        assert span >= 10_000
        return
    assert (made[0][0], made[-1][1]) == (low, min(low + span, MOST))
    assert all(before[1] + 1 == after[0] for before, after in pairwise(made))
    for first, last in (sorted((abs(a), abs(b))) for a, b in made):
        assert len(str(first)) == len(str(last))
        same = sum(
            1 for one in range(len(str(first))) if str(first)[: one + 1] == str(last)[: one + 1]
        )
        is_whole = str(first)[same:].strip("0") == "" and str(last)[same:].strip("9") == ""
        assert same == 0 or len(str(first)) - same <= 2 or (same == 1 and is_whole)


@pytest.mark.parametrize(
    ("keywords", "range_"),
    [
        ({}, (LEAST, MOST)),
        ({"minimum": 1.2, "maximum": 7.9}, (2, 7)),
        ({"exclusiveMinimum": 1, "exclusiveMaximum": 7}, (2, 6)),
        ({"exclusiveMinimum": 0.5, "exclusiveMaximum": 7.5}, (1, 7)),
        ({"minimum": -1e300, "maximum": 1e300}, (LEAST, MOST)),
        ({"minimum": 3, "exclusiveMinimum": 5}, (6, MOST)),
    ],
)
def test_bounds(keywords: dict[str, Any], range_: tuple[int, int]) -> None:
    assert bounds(keywords) == range_


def test_ranges_without_an_integer_and_those_in_too_many_parts() -> None:
    assert parts(3, 2) is None
    assert parts(100_000, 150_000) is None
    assert parts(-150_000, 5) is None
    assert parts(100_000, 199_999) == [(100_000, 199_999)]
    assert parts(1234, 1300) == [(1234, 1239), (1240, 1299), (1300, 1300)]


def test_a_schema_has_its_parts() -> None:
    made, missing = held({"type": "integer", "minimum": 955, "maximum": 999, "title": "x"})
    assert missing == []
    pieces = [(955, 959), (960, 999)]
    each = [{"type": "integer", "minimum": low, "maximum": high} for low, high in pieces]
    assert made == {"title": "x", "anyOf": each}
    assert held({"minimum": 5, "maximum": 5})[1] == ["minimum", "maximum"], (
        "a number, not an integer"
    )
