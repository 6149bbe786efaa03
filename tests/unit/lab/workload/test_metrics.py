from __future__ import annotations

import pytest

from lab.workload.metrics import paired_excess, queue_grows


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
