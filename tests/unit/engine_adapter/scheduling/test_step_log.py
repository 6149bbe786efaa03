from __future__ import annotations

import pytest

from engine_adapter.scheduling.driver import StepLog
from engine_adapter.scheduling.plan import FinishedStep, Outcome, StepKind, StepPlan


def step(predicted_s: float, measured_s: float, stopped: int | None = None) -> FinishedStep:
    plan = StepPlan(1, decode=("a",), predicted_s=predicted_s)
    return FinishedStep(plan, Outcome(1, measured_s, stopped_at_layer=stopped))


def test_errors_are_relative_to_what_was_measured() -> None:
    log = StepLog()
    log.add(step(0.09, 0.10))
    log.add(step(0.13, 0.10))
    log.add(step(9.0, 0.1, stopped=3))
    error = log.errors()[StepKind.DECODE]
    assert error.num_samples == 2
    assert [error.mean, error.max] == pytest.approx([0.2, 0.3])
    assert log.to_plain()["recent"] == [["decode", 90.0, 100.0], ["decode", 130.0, 100.0]]


def test_only_the_newest_are_kept() -> None:
    log = StepLog(size=3)
    for i in range(10):
        log.add(step(0.1, 0.1 + i))
    assert len(log.to_plain()["recent"]) == 3
