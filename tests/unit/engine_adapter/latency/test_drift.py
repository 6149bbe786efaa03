from __future__ import annotations

import pytest

from engine_adapter.core.outcome import FinishedStep, Outcome
from engine_adapter.core.plan import Chunk, StepKind, StepPlan
from engine_adapter.latency.drift import DriftTracker


def step(measured_s: float, *, mixed: bool = False, stopped: int | None = None) -> FinishedStep:
    chunks = (Chunk("b", 1),) if mixed else ()
    plan = StepPlan(1, decode=("a",), prefill=chunks, predicted_s=0.1)
    return FinishedStep(plan, Outcome(1, measured_s, stopped_at_layer=stopped))


def test_an_exact_model_needs_no_margin() -> None:
    drift = DriftTracker()
    for _ in range(50):
        drift.observe(step(0.1))
    assert drift.margin(StepKind.DECODE) == 0.0
    assert drift.bounded(0.2, StepKind.DECODE) == 0.2


def test_slow_steps_widen_the_margin_of_their_own_kind() -> None:
    drift = DriftTracker()
    for _ in range(50):
        drift.observe(step(0.12))
    assert drift.margin(StepKind.DECODE) == pytest.approx(0.2, abs=0.01)
    assert drift.margin(StepKind.MIXED) == 0.0
    assert drift.bounded(0.12, StepKind.DECODE) == pytest.approx(0.1, rel=0.02)


def test_fast_steps_give_room_back_within_a_bound() -> None:
    drift = DriftTracker(relief=0.2)
    for _ in range(50):
        drift.observe(step(0.09))
    assert drift.margin(StepKind.DECODE) == pytest.approx(-0.1, abs=0.01)
    for _ in range(200):
        drift.observe(step(0.05))
    assert drift.margin(StepKind.DECODE) == -0.2
    assert drift.mean_residual(StepKind.DECODE) == pytest.approx(-0.5, abs=0.01)


def test_noise_widens_the_margin_too() -> None:
    drift = DriftTracker()
    for i in range(200):
        drift.observe(step(0.08 if i % 2 else 0.12))
    assert drift.margin(StepKind.DECODE) == pytest.approx(0.4, abs=0.05)


def test_one_stall_does_not_rule() -> None:
    drift = DriftTracker()
    for _ in range(50):
        drift.observe(step(0.1))
    drift.observe(step(60.0))
    assert drift.margin(StepKind.DECODE) <= 0.21


def test_the_margin_has_a_limit() -> None:
    drift = DriftTracker(limit=0.5)
    for _ in range(50):
        drift.observe(step(1.0))
    assert drift.margin(StepKind.DECODE) == 0.5


def test_stopped_steps_are_ignored() -> None:
    drift = DriftTracker()
    drift.observe(step(0.9, stopped=4))
    assert drift.margin(StepKind.DECODE) == 0.0
