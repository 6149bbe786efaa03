from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine_adapter.scheduling.fit import nnls


def test_an_exact_solution_is_found() -> None:
    requests = [[1, 0, 1], [0, 1, 1], [1, 1, 1], [2, 1, 1]]
    truth = [2.0, 3.0, 0.5]
    targets = [sum(a * b for a, b in zip(request, truth, strict=True)) for request in requests]
    assert nnls(requests, targets) == pytest.approx(truth)


def test_a_negative_slope_becomes_zero() -> None:
    # best line through these points falls: without a slope the mean is best
    assert nnls([[1, 1], [2, 1], [3, 1]], [3.0, 2.0, 1.0]) == pytest.approx([0.0, 2.0])


def test_columns_of_very_different_size_are_both_found() -> None:
    requests = [[float(c * c), 1.0] for c in range(100, 2000, 100)]
    targets = [1e-7 * request[0] + 0.07 for request in requests]
    assert nnls(requests, targets) == pytest.approx([1e-7, 0.07], rel=1e-6)


def test_a_column_without_data_gets_zero() -> None:
    assert nnls([[1.0, 0.0], [2.0, 0.0]], [1.0, 2.0]) == pytest.approx([1.0, 0.0])


def test_dependent_columns_share_the_work() -> None:
    x = nnls([[1.0, 1.0], [2.0, 2.0]], [2.0, 4.0])
    assert sum(x) == pytest.approx(2.0)
    assert min(x) >= 0.0


def test_lengths_must_agree() -> None:
    with pytest.raises(ValueError, match="1 regressor rows for 2 observations"):
        nnls([[1.0]], [1.0, 2.0])


@settings(max_examples=200, deadline=None)
@given(
    requests=st.lists(
        st.lists(st.floats(0.0, 100.0), min_size=3, max_size=3), min_size=1, max_size=12
    ),
    data=st.data(),
)
def test_no_small_move_improves_the_fit(requests: list[list[float]], data: st.DataObject) -> None:
    targets = [data.draw(st.floats(0.0, 100.0)) for _ in requests]
    x = nnls(requests, targets)
    assert all(value >= 0.0 for value in x)

    def error(point: list[float]) -> float:
        return sum(
            (sum(a * b for a, b in zip(request, point, strict=True)) - target) ** 2
            for request, target in zip(requests, targets, strict=True)
        )

    best = error(x)
    for i in range(3):
        column = max(request[i] for request in requests)
        if column < 1e-3:
            continue
        for step in (1e-3 / column, -1e-3 / column):
            moved = [*x]
            moved[i] = max(0.0, moved[i] + step)
            assert error(moved) >= best - 1e-4 * (1.0 + best)
