"""Percentiles, and when there are too few values for one."""

from __future__ import annotations

import math

import pytest

from service.percentiles import Distribution, attained, percentile


def test_percentiles_interpolate() -> None:
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert percentile([1.0, 2.0], 0.9) == pytest.approx(1.9)
    assert percentile([math.inf, math.inf], 0.9) == math.inf
    with pytest.raises(ValueError, match="of nothing"):
        percentile([], 0.5)


def test_p99_needs_three_hundred_values() -> None:
    few, enough = Distribution.of([1.0] * 299), Distribution.of([1.0] * 300)
    assert few is not None
    assert few.p99 is None
    assert enough is not None
    assert enough.p99 == 1.0
    assert Distribution.of([]) is None


def test_attainment_includes_the_target_itself() -> None:
    assert attained([1.0, 2.0, 3.0, 4.0], 2.0) == 0.5
    assert attained([], 2.0) is None
