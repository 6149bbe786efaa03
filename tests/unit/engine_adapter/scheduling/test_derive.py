from __future__ import annotations

import pytest

from engine_adapter.scheduling.derive import (
    default_slo,
    safepoint_groups,
    safepoint_layers,
    token_costs,
)
from engine_adapter.scheduling.latency import Coefficients, PolynomialModel, StepLoad


def test_default_targets_leave_half_of_a_typical_step_as_slack(model: PolynomialModel) -> None:
    slo = default_slo(model, prompt_tokens=90, decode_requests=5)
    # 15 ms for five decode requests, 100 ms for the prompt; 31 ms for the requests and 16 tokens of
    # one
    assert slo.tbt_s == pytest.approx(1.5 * 0.031)
    assert slo.ttft_s == pytest.approx(1.5 * 0.115)


def test_a_prompt_fits_beside_requests_whose_decode_graph_is_fast() -> None:
    """4 ms for a captured decode step, 12 ms for anything else: 6 ms would keep prompts out."""
    decode = Coefficients(0.0, 0.0, 0.0, 0.0, 0.0, 0.004)
    eager = Coefficients(25e-6, 0.0, 0.0, 0.0, 0.0, 0.012)
    model = PolynomialModel(decode, eager, eager)
    slo = default_slo(model)
    load = StepLoad()
    load.add_decode(1024)
    assert model.max_tokens(load, 0, 4096, slo.tbt_s) > 200


def test_tokens_cost_their_part_of_a_step(model: PolynomialModel) -> None:
    chunk, decode = StepLoad(), StepLoad()
    chunk.add_chunk(100, 0)
    for _ in range(10):
        decode.add_decode(50)
    prompt_s, answer_s = token_costs(model, decode_requests=10, chunk_tokens=100, context_tokens=50)
    assert 100 * prompt_s == pytest.approx(model.predict(chunk))
    assert 10 * answer_s == pytest.approx(model.predict(decode))


@pytest.mark.parametrize(
    ("interval_s", "predicted_s", "layers"),
    [(0.1, 1.0, 3), (0.1, 0.05, 30), (0.001, 1.0, 1), (0.1, 0.0, 1), (0.0, 1.0, 1)],
)
def test_an_interval_becomes_layers(interval_s: float, predicted_s: float, layers: int) -> None:
    assert safepoint_layers(interval_s, predicted_s, num_layers=30) == layers


@pytest.mark.parametrize("interval_ms", [1, 4, 10])
@pytest.mark.parametrize("predicted_ms", [3, 14, 60, 220])
@pytest.mark.parametrize("num_layers", [6, 32, 80])
@pytest.mark.parametrize("most_groups", [1, 2])
def test_groups_in_flight_share_the_interval(
    interval_ms: int, predicted_ms: int, num_layers: int, most_groups: int
) -> None:
    interval_s, predicted_s = interval_ms / 1e3, predicted_ms / 1e3
    layer_s = predicted_s / num_layers
    every, groups = safepoint_groups(interval_s, predicted_s, num_layers, most_groups)
    assert 1 <= groups <= most_groups
    assert groups * every * layer_s <= max(interval_s, layer_s) * (1 + 1e-9)


def test_where_a_layer_takes_the_interval_nothing_is_launched_ahead() -> None:
    assert safepoint_groups(0.004, 0.22, 32, most_groups=2) == (1, 1)
    assert safepoint_groups(0.004, 0.032, 32, most_groups=2) == (2, 2)
