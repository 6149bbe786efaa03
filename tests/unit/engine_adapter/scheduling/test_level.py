"""One level and one quantile of measured over predicted step times."""

from __future__ import annotations

import random

import pytest

from engine_adapter.scheduling.latency import Coefficients, PolynomialModel, StepLoad
from engine_adapter.scheduling.level import HIGHEST, MOST, CalibratedModel, StepLevel
from engine_adapter.scheduling.plan import Chunk, FinishedStep, Outcome, StepPlan

K = Coefficients(0.01, 0, 1e-5, 0, 0, 0.07)


def step(
    measured_s: float, level: float = 1.0, stopped: int | None = None, *, mixed: bool = False
) -> FinishedStep:
    """A step of 100 ms as profiled."""
    plan = StepPlan(
        step_id=1,
        decode=("a",),
        prefill=(Chunk("b", 8),) if mixed else (),
        predicted_s=0.1 * level,
        calibration=level,
    )
    return FinishedStep(plan, Outcome(1, measured_s, stopped_at_layer=stopped))


def follow(steps: StepLevel, *measured_s: float) -> StepLevel:
    for seconds in measured_s:
        steps.observe(step(seconds, steps.level))
    return steps


def test_steps_as_predicted_change_nothing() -> None:
    steps = follow(StepLevel(), *[0.1] * 50)
    assert steps.level == pytest.approx(1.0)
    assert steps.quantile == 1.0


def test_a_slower_machine_raises_the_level_of_every_kind() -> None:
    steps = StepLevel()
    for _ in range(40):
        steps.observe(step(0.15, steps.level, mixed=True))
    assert steps.level == pytest.approx(1.5, abs=0.01)
    model = CalibratedModel(PolynomialModel(K, K, K), steps)
    load = StepLoad()
    load.add_decode(100)
    assert model.predict(load) == pytest.approx(steps.level * model.profiled.predict(load))
    assert model.level == steps.level


def test_the_level_goes_below_one_on_a_faster_machine() -> None:
    assert follow(StepLevel(), *[0.08] * 40).level == pytest.approx(0.8, abs=0.01)


def test_one_stall_does_not_rule() -> None:
    steps = follow(StepLevel(), *[0.1] * 30, 60.0)
    assert steps.level <= 1.0 + 0.2 * (HIGHEST - 1.0) + 1e-9
    assert steps.quantile < 1.03


def test_the_quantile_rests_where_one_step_in_twenty_is_longer() -> None:
    dice = random.Random(7)
    steps = StepLevel(level=False)
    steps.share = 0.95
    for _ in range(4000):
        steps.observe(step(0.1 * dice.lognormvariate(0.0, 0.1)))
    later = []
    for _ in range(4000):
        factor = dice.lognormvariate(0.0, 0.1)
        later.append(factor > steps.quantile)
        steps.observe(step(0.1 * factor))
    assert sum(later) / len(later) == pytest.approx(0.05, abs=0.02)


def test_the_quantile_comes_back_from_anywhere() -> None:
    """The guard before it froze at its bound: it never counted steps without offline tokens."""
    steps = StepLevel(level=False)
    for _ in range(200):
        steps.observe(step(0.5))
    assert steps.quantile == MOST
    for _ in range(2500):
        steps.observe(step(0.1))
    assert steps.quantile == 1.0


def test_a_stopped_step_says_nothing() -> None:
    steps = StepLevel()
    steps.observe(step(0.9, stopped=4))
    assert (steps.level, steps.quantile) == (1.0, 1.0)


def test_either_can_be_left_out() -> None:
    steps = follow(StepLevel(level=False, quantile=False), *[0.3] * 20)
    assert (steps.level, steps.quantile) == (1.0, 1.0)


def test_what_fits_a_budget_follows_the_level() -> None:
    steps = follow(StepLevel(), *[0.2] * 60)
    model = CalibratedModel(PolynomialModel(K, K, K), steps)
    num_tokens = model.max_tokens(StepLoad(), 0, 4096, 1.0)
    load = StepLoad()
    load.add_chunk(num_tokens, 0)
    assert model.predict(load) <= 1.0
    load = StepLoad()
    load.add_chunk(num_tokens + 1, 0)
    assert model.predict(load) > 1.0


def test_a_decoding_request_joins_at_the_level() -> None:
    steps = follow(StepLevel(), *[0.13] * 60)
    model = CalibratedModel(PolynomialModel(K, K, K), steps)
    load = StepLoad()
    joined = model.predict_with_decode(load, 50)
    load.add_decode(50)
    assert joined == pytest.approx(model.predict(load))
