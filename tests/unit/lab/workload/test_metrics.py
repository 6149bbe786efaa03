from __future__ import annotations

import math

import pytest

from lab.workload.metrics import Distribution, attained, paired_excess, percentile, queue_grows


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


def test_the_excess_is_paired() -> None:
    """Each request is 10 ms later, although the two samples overlap widely."""
    pairs = [(i / 10 + 0.010, i / 10) for i in range(100)]
    excess = paired_excess(pairs)
    assert excess is not None
    assert excess.n == 100
    assert (excess.p50, excess.p90) == pytest.approx((0.010, 0.010))
    assert excess.ci95 == pytest.approx((0.010, 0.010))


def test_the_interval_covers_the_uncertainty() -> None:
    pairs = [(1.0 if i % 5 == 0 else 0.0, 0.0) for i in range(40)]
    excess = paired_excess(pairs)
    assert excess is not None
    low, high = excess.ci95
    assert low < excess.p90 <= high
    assert excess == paired_excess(pairs)
    assert paired_excess([]) is None


def test_a_growing_queue_is_seen() -> None:
    steady = [0.3, 0.4] * 15
    assert not queue_grows(steady)
    assert queue_grows([0.1 * i for i in range(90)])
    assert not queue_grows([0.001 * i for i in range(90)])  # growth below the floor
    assert not queue_grows([0.1, 9.0])
