from __future__ import annotations

from dataclasses import replace

from engine_adapter.scheduling.plan import FinishedStep, Outcome, StepPlan


def test_a_stopped_or_untimed_step_says_nothing_about_the_model() -> None:
    plan = StepPlan(1, decode=("a",), predicted_s=0.1)
    measured = Outcome(1, measured_s=0.1)
    assert FinishedStep(plan, measured).is_comparable
    assert not FinishedStep(plan, replace(measured, stopped_at_layer=3)).is_comparable
    assert not FinishedStep(plan, replace(measured, timing_valid=False)).is_comparable
    assert not FinishedStep(replace(plan, predicted_s=0.0), measured).is_comparable
