from __future__ import annotations

from collections.abc import Iterable

import pytest

from engine_adapter.scheduling.level import DriftTracker
from engine_adapter.scheduling.plan import FinishedStep, Outcome, StepKind, StepPlan

DECODE = StepKind.DECODE


def step(measured_s: float, level: float = 1.0, stopped: int | None = None) -> FinishedStep:
    """A decode step that the profile gives 100 ms, predicted with this level."""
    plan = StepPlan(1, decode=("a",), predicted_s=0.1 * level, calibration=level)
    return FinishedStep(plan, Outcome(1, measured_s, stopped_at_layer=stopped))


def follow(drift: DriftTracker, measured_s: Iterable[float]) -> None:
    """Steps that are predicted as a policy predicts them."""
    for seconds in measured_s:
        drift.observe(step(seconds, drift.level(DECODE)))


def test_an_exact_model_is_left_alone() -> None:
    drift = DriftTracker()
    follow(drift, [0.1] * 50)
    assert drift.level(DECODE) == pytest.approx(1.0)
    assert drift.margin(DECODE) == pytest.approx(0.0, abs=1e-9)


def test_slow_steps_lift_the_level_of_their_own_kind() -> None:
    drift = DriftTracker()
    follow(drift, [0.12] * 100)
    assert drift.level(DECODE) == pytest.approx(1.2, abs=0.001)
    assert drift.margin(DECODE) < 0.02, "what the level covers is no noise"
    assert drift.level(StepKind.MIXED) == 1.0
    assert drift.margin(StepKind.MIXED) == 0.0


def test_a_step_planned_before_the_last_one_ended_does_not_upset_the_level() -> None:
    """With the overlap loop a step's level is one step old."""
    drift = DriftTracker()
    levels = [1.0, 1.0]
    for _ in range(100):
        drift.observe(step(0.13, levels.pop(0)))
        levels.append(drift.level(DECODE))
        assert drift.level(DECODE) <= 1.3
    assert drift.level(DECODE) == pytest.approx(1.3, abs=0.001)


def test_a_pessimistic_profile_gives_room_back_up_to_a_bound() -> None:
    drift = DriftTracker(lowest=0.8)
    follow(drift, [0.09] * 50)
    assert drift.level(DECODE) == pytest.approx(0.9, abs=0.001)
    follow(drift, [0.05] * 50)
    assert drift.level(DECODE) == pytest.approx(0.8, abs=0.001)


def test_noise_widens_the_margin_more_than_the_level() -> None:
    drift = DriftTracker(level_weight=0.05)
    follow(drift, [0.08, 0.12] * 200)
    assert drift.margin(DECODE) == pytest.approx(0.4, abs=0.05)
    assert drift.level(DECODE) == pytest.approx(1.0, abs=0.05)


def test_one_stall_does_not_rule() -> None:
    for before in (0, 100):
        drift = DriftTracker()
        follow(drift, [0.1] * before)
        follow(drift, [60.0])
        assert drift.level(DECODE) <= 1.201
        assert drift.margin(DECODE) <= 0.401


def test_margin_and_level_are_bounded() -> None:
    drift = DriftTracker(limit=0.5, highest=2.0)
    follow(drift, [1.0, 0.01] * 50)
    assert drift.margin(DECODE) == 0.5
    follow(drift, [1.0] * 50)
    assert drift.level(DECODE) == pytest.approx(2.0, abs=0.001)


def test_stopped_steps_say_nothing() -> None:
    drift = DriftTracker()
    drift.observe(step(0.9, stopped=4))
    assert drift.level(DECODE) == 1.0
    assert drift.margin(DECODE) == 0.0
