"""Smoothing: never decreasing, and the nearest such sequence."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from engine_adapter.gpu_tables.gpu_import import isotonic, isotonic_surface

numbers = st.floats(-1e3, 1e3)


def test_neighbours_out_of_order_become_their_mean() -> None:
    assert isotonic([]) == []
    assert isotonic([1, 3, 2, 4]) == [1, 2.5, 2.5, 4]
    assert isotonic([3, 2, 1]) == [2, 2, 2]


@given(st.lists(numbers, min_size=1, max_size=20), st.lists(numbers, min_size=20, max_size=20))
def test_no_other_sequence_that_never_decreases_is_nearer(
    values: list[float], other: list[float]
) -> None:
    smooth, rival = isotonic(values), sorted(other[: len(values)])
    assert all(a <= b + 1e-9 for a, b in itertools.pairwise(smooth))

    def distance(found: list[float]) -> float:
        return sum((a - b) ** 2 for a, b in zip(found, values, strict=True))

    assert distance(smooth) <= distance(rival) + 1e-6


@given(st.lists(st.lists(numbers, min_size=4, max_size=4), min_size=1, max_size=5))
def test_a_surface_decreases_in_neither_direction(requests: list[list[float]]) -> None:
    smooth = isotonic_surface(requests)
    for line in (*smooth, *zip(*smooth, strict=True)):
        assert all(a <= b + 1e-9 for a, b in itertools.pairwise(line))
