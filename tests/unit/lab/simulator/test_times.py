"""Noise that remembers."""

from __future__ import annotations

import math
import statistics
from itertools import pairwise

import pytest

from lab.simulator.times import Noise


def factors(spread: float, memory: float, seed: int = 1, num: int = 20_000) -> list[float]:
    noise = Noise(spread, memory, seed)
    return [noise.next() for _ in range(num)]


@pytest.mark.parametrize("memory", [0.0, 0.2, 0.6])
def test_a_slow_step_is_followed_by_a_slow_one(memory: float) -> None:
    logs = [math.log(factor) for factor in factors(0.1, memory)]
    assert statistics.fmean(logs) == pytest.approx(0.0, abs=0.01)
    assert statistics.stdev(logs) == pytest.approx(0.1, rel=0.05)
    assert statistics.correlation(logs[:-1], logs[1:]) == pytest.approx(memory, abs=0.03)


def test_the_same_seed_gives_the_same_factors() -> None:
    assert factors(0.1, 0.4, 7, 50) == factors(0.1, 0.4, 7, 50) != factors(0.1, 0.4, 8, 50)
    assert all(a != b for a, b in pairwise(factors(0.1, 0.4, 7, 50)))


def test_without_spread_there_is_no_noise() -> None:
    assert set(factors(0.0, 0.4, num=20)) == {1.0}


@pytest.mark.parametrize(("spread", "memory"), [(-0.1, 0.2), (0.1, 1.0), (0.1, -0.1)])
def test_what_is_no_such_process_is_refused(spread: float, memory: float) -> None:
    with pytest.raises(ValueError, match="noise of spread"):
        Noise(spread, memory)
