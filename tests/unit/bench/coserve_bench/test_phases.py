"""OFF phases: rates before and after the tenth step."""

from __future__ import annotations

import pytest

from bench.coserve_bench.phases import off_phases
from lab.workload.harness import RunResult
from lab.workload.records import RequestRecord
from lab.workload.summary import SystemRun


def run(samples: list[tuple[float, int, int]], last_token_s: float) -> SystemRun:
    online = RequestRecord("online-0", True, 100, 1.0, done=True)
    online.token_times_s = [2.0, last_token_s]
    return SystemRun("x", 0, RunResult([online], [], 30.0, samples=samples))


def test_the_phase_begins_with_the_last_answer_and_its_first_ten_steps_are_apart() -> None:
    """On to 10 s, answered at 12 s; 2 steps/s and 50 tokens/s for ten steps, then 100 tokens/s."""
    samples = [(float(t), 2 * t, 50 * (t - 12) + max(0, 50 * (t - 17))) for t in range(31)]
    found = off_phases([run(samples, 12.0)], (10.0, 20.0))
    assert found is not None
    assert found["phases"] == 1
    assert found["first_10_steps_tokens_per_s"] == pytest.approx(50.0)
    assert found["rest_tokens_per_s"] == pytest.approx(100.0)
    assert found["ratio"] == pytest.approx(0.5)


def test_without_samples_or_without_off_phases_there_is_nothing() -> None:
    assert off_phases([run([], 12.0)], (10.0, 20.0)) is None
    assert off_phases([run([(1.0, 1, 1)], 12.0)], ()) is None


def test_a_phase_that_ends_before_its_tenth_step_does_not_count() -> None:
    samples = [(float(t), t // 4, 10 * t) for t in range(31)]
    assert off_phases([run(samples, 12.0)], (10.0, 20.0)) is None
