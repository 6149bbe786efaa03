"""One gap in twenty is late, whatever the noise; what offline work cannot help does not count."""

from __future__ import annotations

import random

import pytest

from engine_adapter.scheduling.budget import LATE_SHARE, LEAST, TbtGuard
from engine_adapter.scheduling.plan import FinishedStep, Outcome, StepPlan

TBT_S = 0.1


def step(gap_s: float, offline_tokens: int = 8) -> FinishedStep:
    outcome = Outcome(1, gap_s, online_tokens=1, offline_tokens=offline_tokens, online_gap_s=gap_s)
    return FinishedStep(StepPlan(1, decode=("a",), predicted_s=TBT_S), outcome)


@pytest.mark.parametrize("sigma", [0.02, 0.1, 0.2])
def test_noise_of_any_size_makes_one_gap_in_twenty_late(sigma: float) -> None:
    dice, guard, late = random.Random(1), TbtGuard(), 0
    for i in range(6000):
        gap_s = TBT_S * guard.share * dice.lognormvariate(0.0, sigma)
        late += i >= 1000 and gap_s > TBT_S
        guard.observe(step(gap_s), TBT_S)
    assert late / 5000 == pytest.approx(LATE_SHARE, abs=0.015)


def test_gaps_that_fit_leave_the_whole_target() -> None:
    guard = TbtGuard()
    for _ in range(100):
        guard.observe(step(TBT_S), TBT_S)
    assert guard.share == 1.0


def test_what_less_offline_work_would_not_help_does_not_count() -> None:
    guard = TbtGuard()
    for found in (step(2.1 * TBT_S), step(0.0), step(1.5 * TBT_S, offline_tokens=0)):
        guard.observe(found, TBT_S)
    assert guard.share == 1.0


def test_the_share_is_bounded_and_comes_back() -> None:
    guard = TbtGuard()
    for _ in range(100):
        guard.observe(step(1.5 * TBT_S), TBT_S)
    assert guard.share == pytest.approx(LEAST)
    for _ in range(200):
        guard.observe(step(0.5 * TBT_S), TBT_S)
    assert guard.share == 1.0
