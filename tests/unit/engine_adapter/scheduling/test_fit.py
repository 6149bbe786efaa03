from __future__ import annotations

from dataclasses import replace

import pytest

from engine_adapter.scheduling.fit import (
    Sample,
    errors_by_kind,
    fit_model,
    fit_with_holdout,
    smallest_per_load,
)
from engine_adapter.scheduling.latency import Coefficients, PolynomialModel, StepLoad
from engine_adapter.scheduling.plan import StepKind

TRUTH = PolynomialModel(
    decode=Coefficients(5e-4, 0, 1.2e-5, 0, 0, 0.070, k_batch=0.080),
    prefill=Coefficients(4.6e-4, 2e-8, 1e-5, 1.2e-7, 0, 0.070),
    mixed=Coefficients(4.8e-4, 2e-8, 1e-5, 1.3e-7, 1e-4, 0.075),
)


def measured(decode: tuple[int, ...], chunks: tuple[tuple[int, int], ...]) -> Sample:
    sample = Sample(decode, chunks, 1.0)
    return Sample(decode, chunks, TRUTH.predict(sample.load()))


def grid() -> list[Sample]:
    samples = [measured((c,) * requests, ()) for requests in (1, 2, 4, 8) for c in (64, 512, 2048)]
    samples += [measured((), ((p, c),)) for p in (16, 64, 256, 512) for c in (0, 256, 1024)]
    samples += [
        measured((c,) * requests, ((p, c),))
        for requests in (1, 4)
        for p in (16, 128)
        for c in (64, 300, 900, 1500)
    ]
    return samples


def test_the_fit_finds_the_truth_again() -> None:
    fit = fit_with_holdout(grid())
    for kind in (StepKind.DECODE, StepKind.PREFILL, StepKind.MIXED):
        assert fit.held_out[kind].max < 0.01
    assert max(error.max for error in errors_by_kind(fit.model, grid()).values()) < 0.001


def test_of_repeats_the_least_disturbed_counts() -> None:
    noisy = [Sample((5,), (), t) for t in (0.3, 0.1, 0.2)]
    assert smallest_per_load(noisy) == [Sample((5,), (), 0.1)]


def test_mixed_steps_borrow_from_prefill_when_unmeasured() -> None:
    model = fit_model([s for s in grid() if not (s.decode and s.chunks)])
    assert model.mixed == model.prefill
    assert model.decode != model.prefill


def test_a_lone_token_is_not_free_where_none_was_measured() -> None:
    model = fit_model(grid())
    lone = Sample((), ((1, 300),), 1.0).load()
    assert model.predict(lone) == pytest.approx(TRUTH.predict(lone), rel=0.01)
    assert model.prefill.k_batch == model.mixed.k_batch == 0.0
    assert model.decode.k_batch > 0.0, "decode steps of one request were measured"


def test_a_fit_needs_steps_of_positive_length() -> None:
    with pytest.raises(ValueError, match="no measured steps"):
        fit_model([])
    with pytest.raises(ValueError, match="cannot take 0"):
        fit_model([Sample((1,), (), 0.0)])


def test_a_plateau_is_found() -> None:
    """Matrices of a GPU cost the same up to a size, and in proportion beyond."""
    truth = Coefficients(2e-6, 0.0, 1e-8, 0.0, 0.0, 0.006, 0.0, 2e-5, 192.0)
    model = PolynomialModel(truth, truth, truth)
    samples = []
    for p in (8, 16, 48, 96, 160, 256, 400, 512, 1024, 2048):
        for c in (0, 512, 2048):
            load = StepLoad()
            load.add_chunk(p, c)
            samples.append(Sample((), ((p, c),), model.predict(load)))
    fitted = fit_model(samples).prefill
    assert fitted.knee == 192.0
    assert fitted.k_hinge == pytest.approx(2e-5, rel=1e-3)


def test_a_straight_line_gets_no_knee() -> None:
    line = Coefficients(2e-5, 0.0, 1e-8, 0.0, 0.0, 0.006)
    model = PolynomialModel(line, line, line)
    samples = []
    for p in (8, 16, 48, 96, 160, 256, 400, 512, 1024, 2048):
        load = StepLoad()
        load.add_chunk(p, 100)
        samples.append(Sample((), ((p, 100),), model.predict(load)))
    assert fit_model(samples).prefill.knee == 0.0


def test_steps_outside_graphs_have_a_fit_of_their_own() -> None:
    """And those inside are charged for the tokens that they are padded with."""
    graph = Coefficients(1e-4, 0.0, 1e-8, 0.0, 0.0, 0.005)
    eager = Coefficients(1e-4, 0.0, 1e-8, 0.0, 0.0, 0.015)
    sizes = (64, 128, 256, 512)
    truth = PolynomialModel(graph, graph, graph, (), sizes, eager, eager)
    samples = []
    for requests in (0, 1, 4, 12):
        for p in (40, 64, 100, 128, 200, 256, 400, 512, 700, 1000):
            for c in (0, 512, 2048):
                for armed in (False, True):
                    sample = Sample((c,) * requests, ((p, c),), 1.0, armed)
                    ran_as = truth.eager if armed else truth
                    samples.append(replace(sample, measured_s=ran_as.predict(sample.load())))
    fit = fit_with_holdout(samples, prefill_token_steps=sizes)
    assert max(error.max for error in fit.held_out.values()) < 0.001
    unseen = Sample((900,) * 3, ((190, 300),), 1.0).load()
    assert fit.model.predict(unseen) == pytest.approx(truth.predict(unseen), rel=0.001)
    assert fit.model.eager.predict(unseen) == pytest.approx(truth.eager.predict(unseen), rel=0.001)
    assert truth.eager.predict(unseen) > truth.predict(unseen)


def test_nothing_is_eager_where_nothing_is_captured() -> None:
    slower = [replace(s, measured_s=2 * s.measured_s, armed=True) for s in grid() if s.chunks]
    model = fit_model([*grid(), *slower])
    assert model.mixed == fit_model(grid()).mixed
    assert (model.eager_prefill, model.eager_mixed) == (None, None)
    assert model.eager is model
