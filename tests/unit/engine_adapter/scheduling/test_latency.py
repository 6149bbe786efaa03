"""Predictions of step times, and how far the machine is from them."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_adapter.scheduling.latency import (
    HIGHEST_SLOWDOWN,
    MOST_QUANTILE,
    CalibratedModel,
    Coefficients,
    PolynomialModel,
    StepLoad,
    StepTimes,
)
from engine_adapter.scheduling.plan import Chunk, FinishedStep, Outcome, StepPlan

unit = st.floats(min_value=0.0, max_value=1.0, allow_nan=False)
coefficients = st.builds(
    Coefficients,
    k_token=unit.map(lambda x: 1e-5 + x * 1e-3),
    k_attention=unit.map(lambda x: x * 1e-6),
    k_context=unit.map(lambda x: x * 1e-5),
    k_square=unit.map(lambda x: x * 1e-6),
    k_request=unit.map(lambda x: x * 1e-3),
    k_constant=unit.map(lambda x: x * 0.1),
    k_batch=unit.map(lambda x: x * 0.1),
    k_hinge=unit.map(lambda x: max(0.0, x - 0.5) * 1e-3),
    knee=st.sampled_from([0.0, 32.0, 128.0, 512.0]),
)


@given(
    k=coefficients,
    decode=st.lists(st.integers(0, 5000), max_size=5),
    context=st.integers(0, 20000),
    limit=st.integers(0, 5000),
    budget_s=st.floats(0.0, 2.0),
)
def test_max_tokens_is_the_largest_chunk_that_fits(
    k: Coefficients, decode: list[int], context: int, limit: int, budget_s: float
) -> None:
    model = PolynomialModel(k, k, k)
    load = StepLoad()
    for c in decode:
        load.add_decode(c)
    n = model.max_tokens(load, context, limit, budget_s)

    def time_with(num_tokens: int) -> float:
        trial = load.copy()
        trial.add_chunk(num_tokens, context)
        return model.predict(trial)

    assert 0 <= n <= limit
    if n == 0 and not decode:
        return  # one token alone is charged as a batch
    if n:
        assert time_with(n) <= budget_s * (1 + 1e-6) + 1e-9
    if n < limit:
        assert time_with(n + 1) > budget_s * (1 - 1e-6) - 1e-9


def test_an_endless_budget_takes_everything(model: PolynomialModel) -> None:
    assert model.max_tokens(StepLoad(), 0, 77, math.inf) == 77


def test_free_tokens_are_all_taken() -> None:
    nothing = Coefficients(0, 0, 0, 0, 0, 0.01)
    assert PolynomialModel(nothing, nothing, nothing).max_tokens(StepLoad(), 0, 9, 0.02) == 9


def test_predict_with_decode_equals_adding_the_request() -> None:
    k = Coefficients(1e-3, 1e-6, 1e-5, 1e-7, 1e-4, 0.01, k_batch=0.02)
    model = PolynomialModel(k, k, k)
    for chunk in (False, True):
        load = StepLoad()
        load.add_decode(10)
        if chunk:
            load.add_chunk(8, 3)
        predicted = model.predict_with_decode(load, 100)
        load.add_decode(100)
        assert predicted == pytest.approx(model.predict(load))


def test_each_kind_of_step_has_its_own_fit() -> None:
    def flat(seconds: float) -> Coefficients:
        return Coefficients(0, 0, 0, 0, 0, seconds)

    model = PolynomialModel(decode=flat(1), prefill=flat(2), mixed=flat(3))
    load = StepLoad()
    assert model.predict(load) == 0.0
    load.add_decode(5)
    assert model.predict(load) == 1
    load.add_chunk(5, 0)
    assert model.predict(load) == 3
    alone = StepLoad()
    alone.add_chunk(5, 0)
    assert model.predict(alone) == 2


def test_a_captured_graph_pads_the_requests() -> None:
    k = Coefficients(1.0, 0, 0, 0, 0, 0)
    model = PolynomialModel(k, k, k, decode_row_steps=(8, 1, 4))
    load = StepLoad()
    for requests, padded in ((1, 1), (2, 4), (3, 4), (4, 4), (5, 8)):
        while load.decode_requests < requests:
            load.add_decode(0)
        assert model.predict(load) == padded


def test_more_work_cannot_take_less_time() -> None:
    with pytest.raises(ValueError, match="finite and >= 0"):
        Coefficients(-1e-9, 0, 0, 0, 0, 0)


# --- Captured graphs of steps with prompt tokens, and steps outside of them.

SIZES = (16, 64, 256, 320)
GRAPH = Coefficients(1e-4, 1e-9, 1e-8, 0, 0, 0.004)
EAGER = Coefficients(1e-4, 1e-9, 1e-8, 0, 0, 0.012)


def captured() -> PolynomialModel:
    return PolynomialModel(GRAPH, GRAPH, GRAPH, (), SIZES, EAGER, EAGER)


def chunk(num_tokens: int, decode_requests: int = 0) -> StepLoad:
    load = StepLoad()
    for _ in range(decode_requests):
        load.add_decode(100)
    load.add_chunk(num_tokens, 0)
    return load


def test_a_step_with_prompt_tokens_computes_its_whole_graph() -> None:
    model, unpadded = captured(), PolynomialModel(GRAPH, GRAPH, GRAPH)
    per_token_s = GRAPH.k_token
    for num_tokens, size in ((16, 16), (40, 64), (200, 256), (257, 320)):
        more = size - num_tokens
        for requests in (0, 4):
            load = chunk(num_tokens - requests, requests)
            padded_s = unpadded.predict(load) + more * per_token_s
            assert model.predict(load) == pytest.approx(padded_s)


def test_a_step_that_no_graph_holds_is_launched_layer_by_layer() -> None:
    model, eager = captured(), PolynomialModel(GRAPH, EAGER, EAGER)
    for num_tokens in (321, 2000, 17, 31, 100):  # beyond the largest, or padded to over twice
        assert model.predict(chunk(num_tokens)) == eager.predict(chunk(num_tokens))
    assert model.eager.predict(chunk(64, 2)) == eager.predict(chunk(64, 2))
    assert eager.eager is eager


@given(
    decode=st.integers(0, 90),
    context=st.integers(0, 5000),
    limit=st.integers(1, 900),
    budget_s=st.floats(0.004, 0.2),
)
def test_what_is_said_to_fit_fits_with_its_padding(
    decode: int, context: int, limit: int, budget_s: float
) -> None:
    model = captured()
    load = StepLoad()
    for _ in range(decode):
        load.add_decode(100)

    def time_with(num_tokens: int) -> float:
        trial = load.copy()
        trial.add_chunk(num_tokens, context)
        return model.predict(trial)

    num_tokens = model.max_tokens(load, context, limit, budget_s)
    assert 0 <= num_tokens <= limit
    if num_tokens:
        assert time_with(num_tokens) <= budget_s * (1 + 1e-9)
    for size in SIZES:  # a graph that could be filled is not left for less
        if num_tokens < size - decode <= limit:
            assert time_with(size - decode) > budget_s * (1 - 1e-9)


def test_a_chunk_ends_where_the_graph_is_full() -> None:
    model = captured()
    load = StepLoad()
    load.add_decode(100)
    assert model.whole_tokens(load, 0, 300) == 255, "the next graph would be padded"
    assert model.whole_tokens(load, 0, 319) == 319, "full"
    assert model.whole_tokens(load, 0, 316) == 316, "three tokens less than full"
    assert model.whole_tokens(load, 0, 400) == 319, "no graph holds so many"
    assert model.whole_tokens(load, 0, 9) == 9, "nothing smaller is captured"
    assert PolynomialModel(GRAPH, GRAPH, GRAPH).whole_tokens(load, 0, 300) == 300


def test_a_corrected_model_pads_alike() -> None:
    model = CalibratedModel(captured(), StepTimes())
    assert model.predict(chunk(40)) == captured().predict(chunk(40))
    assert model.whole_tokens(StepLoad(), 0, 300) == 256
    assert model.eager.predict(chunk(40)) == captured().eager.predict(chunk(40))
    assert model.eager.eager is model.eager
    plain = CalibratedModel(PolynomialModel(GRAPH, GRAPH, GRAPH), StepTimes())
    assert plain.eager is plain


# --- Level and quantile.

SHARE = 0.98
K = Coefficients(0.01, 0, 1e-5, 0, 0, 0.07)


def step(
    measured_s: float, slowdown: float = 1.0, stopped: int | None = None, *, mixed: bool = False
) -> FinishedStep:
    """A step of 100 ms as profiled."""
    plan = StepPlan(
        step_id=1,
        decode=("a",),
        prefill=(Chunk("b", 8),) if mixed else (),
        predicted_s=0.1 * slowdown,
        calibration=slowdown,
    )
    return FinishedStep(plan, Outcome(1, measured_s, stopped_at_layer=stopped))


def follow(steps: StepTimes, *measured_s: float) -> StepTimes:
    steps.quantile(SHARE)
    for seconds in measured_s:
        steps.observe(step(seconds, steps.slowdown))
    return steps


def test_steps_as_predicted_change_nothing() -> None:
    steps = follow(StepTimes(), *[0.1] * 50)
    assert steps.slowdown == pytest.approx(1.0)
    assert steps.quantile(SHARE) == 1.0


def test_a_slower_machine_raises_the_slowdown_of_every_kind() -> None:
    steps = StepTimes()
    for _ in range(40):
        steps.observe(step(0.15, steps.slowdown, mixed=True))
    assert steps.slowdown == pytest.approx(1.5, abs=0.01)
    profiled = PolynomialModel(K, K, K)
    model = CalibratedModel(profiled, steps)
    load = StepLoad()
    load.add_decode(100)
    assert model.predict(load) == pytest.approx(steps.slowdown * profiled.predict(load))
    assert model.slowdown == steps.slowdown


def test_the_slowdown_goes_below_one_on_a_faster_machine() -> None:
    assert follow(StepTimes(), *[0.08] * 40).slowdown == pytest.approx(0.8, abs=0.01)


def test_one_stall_does_not_rule() -> None:
    steps = follow(StepTimes(), *[0.1] * 30, 60.0)
    assert steps.slowdown <= 1.0 + 0.2 * (HIGHEST_SLOWDOWN - 1.0) + 1e-9
    assert steps.quantile(SHARE) < 1.03


def test_the_quantile_rests_where_one_step_in_twenty_is_longer() -> None:
    dice = random.Random(7)
    steps = StepTimes(slowdown=False)
    for share in (0.5, 0.95):  # each is followed for itself
        assert steps.quantile(share) == 1.0
    for _ in range(4000):
        steps.observe(step(0.1 * dice.lognormvariate(0.0, 0.1)))
    later = []
    for _ in range(4000):
        factor = dice.lognormvariate(0.0, 0.1)
        later.append(factor > steps.quantile(0.95))
        steps.observe(step(0.1 * factor))
    assert sum(later) / len(later) == pytest.approx(0.05, abs=0.02)
    assert steps.quantile(0.5) < steps.quantile(0.95)


def test_the_quantile_comes_back_from_anywhere() -> None:
    """The guard before it froze at its bound: it never counted steps without offline tokens."""
    steps = StepTimes(slowdown=False)
    steps.quantile(SHARE)
    for _ in range(200):
        steps.observe(step(0.5))
    assert steps.quantile(SHARE) == MOST_QUANTILE
    for _ in range(2500):
        steps.observe(step(0.1))
    assert steps.quantile(SHARE) == 1.0


def test_a_stopped_step_says_nothing() -> None:
    steps = StepTimes()
    steps.observe(step(0.9, stopped=4))
    assert (steps.slowdown, steps.quantile(SHARE)) == (1.0, 1.0)


def test_either_can_be_left_out() -> None:
    steps = follow(StepTimes(slowdown=False, quantile=False), *[0.3] * 20)
    assert (steps.slowdown, steps.quantile(SHARE)) == (1.0, 1.0)


def test_what_fits_a_budget_follows_the_slowdown() -> None:
    steps = follow(StepTimes(), *[0.2] * 60)
    model = CalibratedModel(PolynomialModel(K, K, K), steps)
    num_tokens = model.max_tokens(StepLoad(), 0, 4096, 1.0)
    load = StepLoad()
    load.add_chunk(num_tokens, 0)
    assert model.predict(load) <= 1.0
    load = StepLoad()
    load.add_chunk(num_tokens + 1, 0)
    assert model.predict(load) > 1.0


def test_a_decoding_request_joins_at_the_slowdown() -> None:
    steps = follow(StepTimes(), *[0.13] * 60)
    model = CalibratedModel(PolynomialModel(K, K, K), steps)
    load = StepLoad()
    joined = model.predict_with_decode(load, 50)
    load.add_decode(50)
    assert joined == pytest.approx(model.predict(load))
