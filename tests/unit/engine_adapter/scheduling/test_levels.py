"""How long a step beside online requests is, by level."""

from __future__ import annotations

import pytest

from engine_adapter.scheduling.latency import Coefficients, PolynomialModel, StepLoad
from engine_adapter.scheduling.policies.conserve_v2 import efficient_step_s

SHARES = (0.5, 0.8, 0.9, 0.95, 0.99)


def model(**mixed: float) -> PolynomialModel:
    """Steps of 10 ms and 10 us a token, unless said otherwise."""
    zero = {"k_attention": 0.0, "k_context": 0.0, "k_square": 0.0, "k_request": 0.0}
    fit = Coefficients(**{"k_token": 1e-5, "k_constant": 0.01, **zero, **mixed})
    return PolynomialModel(fit, fit, fit)


MODELS = {
    "a line": model(),
    "a plateau, then a line": model(k_token=1e-6, k_hinge=1e-5, knee=300.0),
    "attention within the prompt": model(k_square=2e-9),
}


def decoding(requests: int = 8) -> StepLoad:
    load = StepLoad()
    for _ in range(requests):
        load.add_decode(500)
    return load


def rate(model: PolynomialModel, load: StepLoad, tokens: int) -> float:
    mixed = load.copy()
    mixed.add_chunk(tokens, 0)
    return tokens / model.predict(mixed)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("share", SHARES)
def test_the_rate_is_kept_and_hardly_a_shorter_step_keeps_it(name: str, share: float) -> None:
    steps, load, bound_s = MODELS[name], decoding(), 0.05
    most = steps.max_tokens(load, 0, 8192, bound_s)
    enough = share * rate(steps, load, most)
    length_s = efficient_step_s(steps, load, bound_s, share, 8192)
    tokens = steps.max_tokens(load, 0, 8192, length_s)
    assert length_s < bound_s
    assert rate(steps, load, tokens + 1) >= enough * 0.999
    least = next(n for n in range(1, most + 1) if rate(steps, load, n) >= enough)
    assert tokens <= 1.1 * least + 2


def test_more_chat_wants_a_longer_step() -> None:
    steps = model(k_request=1e-4)
    lengths = [efficient_step_s(steps, decoding(n), 0.1, 0.9, 8192) for n in (1, 32, 128)]
    assert lengths == sorted(lengths)
    assert lengths[0] < lengths[-1]


@pytest.mark.parametrize("share", [0.9, 1.0])
def test_where_nothing_fits_or_all_is_wanted_the_deadline_stays(share: float) -> None:
    assert efficient_step_s(model(), decoding(), 0.009, share, 8192) == 0.009
    assert efficient_step_s(model(), decoding(), 0.05, 1.0, 8192) == 0.05
    assert efficient_step_s(model(), StepLoad(), 0.05, share, 8192) == 0.05
