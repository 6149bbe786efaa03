from __future__ import annotations

import itertools
import statistics

import pytest

from lab.workload.arrivals import gamma_arrivals, on_off_arrivals, poisson_arrivals


@pytest.mark.parametrize("cv", [0.5, 1.0, 3.0])
def test_rate_and_burstiness_are_those_asked_for(cv: float) -> None:
    arrivals = gamma_arrivals(2.0, cv, duration_s=20_000.0, seed=7)
    gaps = [b - a for a, b in itertools.pairwise(arrivals)]
    assert len(arrivals) / 20_000.0 == pytest.approx(2.0, rel=0.05)
    assert statistics.stdev(gaps) / statistics.mean(gaps) == pytest.approx(cv, rel=0.05)


def test_the_same_seed_gives_the_same_arrivals() -> None:
    assert poisson_arrivals(1.0, 50.0, seed=3) == poisson_arrivals(1.0, 50.0, seed=3)
    assert poisson_arrivals(1.0, 50.0, seed=3) != poisson_arrivals(1.0, 50.0, seed=4)


def test_off_phases_are_silent() -> None:
    arrivals = on_off_arrivals(5.0, [10.0, 20.0, 10.0], seed=1)
    assert arrivals == sorted(arrivals)
    assert any(at_s < 10.0 for at_s in arrivals)
    assert any(30.0 <= at_s < 40.0 for at_s in arrivals)
    assert not [at_s for at_s in arrivals if 10.0 <= at_s < 30.0]


@pytest.mark.parametrize("bad", [(0.0, 1.0, 1.0), (1.0, 0.0, 1.0), (1.0, 1.0, 0.0)])
def test_senseless_processes_are_refused(bad: tuple[float, float, float]) -> None:
    with pytest.raises(ValueError, match="must be positive"):
        gamma_arrivals(*bad, seed=1)
