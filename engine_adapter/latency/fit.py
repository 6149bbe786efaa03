"""Fits the step-time polynomial to measured steps (ConServe v2, section 4.2).

Errors are weighted relatively: a step of 5 ms and one of 500 ms count the same per cent. Several
measurements of the same load are reduced to their smallest, which is the one least disturbed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from engine_adapter.core.plan import StepKind
from engine_adapter.latency.load import StepLoad
from engine_adapter.latency.nnls import nnls
from engine_adapter.latency.polynomial import Coefficients, PolynomialModel

BATCH_COLUMN = 5  # of StepLoad.regressors


@dataclass(frozen=True, slots=True)
class Sample:
    """One measured step: its rows as ``(num_tokens, context_tokens)`` and its duration."""

    decode: tuple[int, ...]
    chunks: tuple[tuple[int, int], ...]
    measured_s: float

    def load(self) -> StepLoad:
        """The sums the model looks at."""
        load = StepLoad()
        for context in self.decode:
            load.add_decode(context)
        for num_tokens, context in self.chunks:
            load.add_chunk(num_tokens, context)
        return load


@dataclass(frozen=True, slots=True)
class FitError:
    """Relative errors ``|predicted - measured| / measured``."""

    num_samples: int
    mean: float
    p50: float
    p95: float
    max: float


@dataclass(frozen=True, slots=True)
class Fit:
    """A fitted model and how well it describes samples it has not seen."""

    model: PolynomialModel
    held_out: dict[StepKind, FitError]


def smallest_per_load(samples: Iterable[Sample]) -> list[Sample]:
    """One sample per load: the fastest repeat."""
    best: dict[tuple[object, object], Sample] = {}
    for sample in samples:
        key = (sample.decode, sample.chunks)
        if key not in best or sample.measured_s < best[key].measured_s:
            best[key] = sample
    return list(best.values())


def fit_coefficients(samples: Sequence[Sample]) -> Coefficients:
    """Relative non-negative least squares over steps of one kind.

    Raises:
        ValueError: If a duration is not positive or there is no sample.
    """
    for sample in samples:
        if sample.measured_s <= 0.0:
            raise ValueError(f"a step cannot take {sample.measured_s} s")
    loads = [sample.load() for sample in samples]
    # Where no step of this kind has a lone token, "more than one" is the constant: were it fitted
    # beside it, a lone token (a prompt that is in the cache but for its last) would cost nothing.
    all_batched = all(load.num_tokens > 1 for load in loads)
    rows, targets = [], []
    for sample, load in zip(samples, loads, strict=True):
        regressors = list(load.regressors())
        if all_batched:
            regressors[BATCH_COLUMN] = 0.0
        rows.append([value / sample.measured_s for value in regressors])
        targets.append(1.0)
    token, attention, context, square, row, batch, constant = nnls(rows, targets)
    return Coefficients(token, attention, context, square, row, constant, batch)


def fit_model(samples: Iterable[Sample], decode_row_steps: tuple[int, ...] = ()) -> PolynomialModel:
    """One fit per executor; a kind without samples borrows the fit nearest to it.

    Decoding requests in a mixed step run through the prefill executor, so mixed and prefill steps
    stand in for each other; decode borrows from prefill, and prefill from decode, as a last resort.

    Raises:
        ValueError: If there is no sample at all.
    """
    by_kind: dict[StepKind, list[Sample]] = {}
    for sample in smallest_per_load(samples):
        by_kind.setdefault(sample.load().kind, []).append(sample)
    by_kind.pop(StepKind.IDLE, None)
    if not by_kind:
        raise ValueError("no measured steps to fit")
    fits = {kind: fit_coefficients(group) for kind, group in by_kind.items()}

    def nearest(*kinds: StepKind) -> Coefficients:
        return next(fits[kind] for kind in kinds if kind in fits)

    return PolynomialModel(
        decode=nearest(StepKind.DECODE, StepKind.MIXED, StepKind.PREFILL),
        prefill=nearest(StepKind.PREFILL, StepKind.MIXED, StepKind.DECODE),
        mixed=nearest(StepKind.MIXED, StepKind.PREFILL, StepKind.DECODE),
        decode_row_steps=decode_row_steps,
    )


def fit_with_holdout(
    samples: Iterable[Sample], every: int = 4, decode_row_steps: tuple[int, ...] = ()
) -> Fit:
    """Fit to all samples, and report the error of a fit that left every ``every``-th load out."""
    unique = smallest_per_load(samples)
    kept: list[Sample] = []
    held: list[Sample] = []
    counts: dict[StepKind, int] = {}
    for sample in unique:
        kind = sample.load().kind
        counts[kind] = counts.get(kind, 0) + 1
        (held if counts[kind] % every == 0 else kept).append(sample)
    errors: dict[StepKind, FitError] = {}
    if held and kept:
        trial = fit_model(kept, decode_row_steps)
        errors = errors_by_kind(trial, held)
    return Fit(fit_model(unique, decode_row_steps), errors)


def errors_by_kind(model: PolynomialModel, samples: Iterable[Sample]) -> dict[StepKind, FitError]:
    """Relative errors of a model over samples, per step kind."""
    by_kind: dict[StepKind, list[float]] = {}
    for sample in samples:
        load = sample.load()
        error = abs(model.predict(load) - sample.measured_s) / sample.measured_s
        by_kind.setdefault(load.kind, []).append(error)
    return {kind: summarise(values) for kind, values in by_kind.items()}


def summarise(errors: Sequence[float]) -> FitError:
    """Mean and percentiles (nearest rank) of a non-empty list of errors."""
    ordered = sorted(errors)
    last = len(ordered) - 1
    return FitError(
        num_samples=len(ordered),
        mean=sum(ordered) / len(ordered),
        p50=ordered[round(0.5 * last)],
        p95=ordered[round(0.95 * last)],
        max=ordered[-1],
    )
