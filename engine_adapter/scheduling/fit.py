"""Fits the step-time polynomial to measured steps (ConServe v2, section 4.2).

Errors are weighted relatively: a step of 5 ms and one of 500 ms count the same per cent. Several
measurements of the same load are reduced to their smallest, which is the one least disturbed.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from operator import mul

from engine_adapter.scheduling.latency import (
    Coefficients,
    PolynomialModel,
    StepLoad,
)
from engine_adapter.scheduling.plan import SafepointMode, StepKind
from engine_adapter.scheduling.prefill_graphs import graph_tokens

# --- Non-negative least squares for a handful of unknowns, in plain Python.
#
# The active-set method of Lawson and Hanson (Solving Least Squares Problems, 1974, chapter 23) on
# the normal equations. Columns are scaled to unit length first, so that regressors of the size of
# squared context lengths sit beside a constant one.


Vector = list[float]
Matrix = list[Vector]


def nnls(requests: Sequence[Sequence[float]], targets: Sequence[float]) -> Vector:
    """Minimise ``sum (request . x - target)^2`` under ``x >= 0``.

    Args:
        requests: One regressor vector per observation, all of the same length.
        targets: One observation each.

    Returns:
        The coefficients; a column that is zero throughout gets 0.

    Raises:
        ValueError: If there is no observation or the lengths differ.
    """
    if not requests or len(requests) != len(targets):
        raise ValueError(f"{len(requests)} regressor rows for {len(targets)} observations")
    size = len(requests[0])
    scale = [math.sqrt(sum(request[j] * request[j] for request in requests)) for j in range(size)]
    scaled = [
        [request[j] / scale[j] if scale[j] else 0.0 for j in range(size)] for request in requests
    ]
    gram = [
        [sum(request[i] * request[j] for request in scaled) for j in range(size)]
        for i in range(size)
    ]
    moment = [
        sum(request[i] * target for request, target in zip(scaled, targets, strict=True))
        for i in range(size)
    ]
    solution = _solve_active_set(gram, moment)
    return [x / s if s else 0.0 for x, s in zip(solution, scale, strict=True)]


def _solve_active_set(gram: Matrix, moment: Vector) -> Vector:
    size = len(moment)
    x = [0.0] * size
    passive: list[int] = []
    tolerance = 1e-12 * max((abs(value) for value in moment), default=0.0)
    for _ in range(8 * size):
        gradient = [moment[i] - sum(gram[i][j] * x[j] for j in range(size)) for i in range(size)]
        free = [i for i in range(size) if i not in passive and gradient[i] > tolerance]
        if not free:
            break
        passive.append(max(free, key=lambda i: gradient[i]))
        if not _walk_to_feasible(gram, moment, x, passive):
            break
    return x


def _walk_to_feasible(gram: Matrix, moment: Vector, x: Vector, passive: list[int]) -> bool:
    """Move ``x`` to the best point of the passive set, dropping columns that turn negative."""
    while passive:
        best = _solve_symmetric(
            [[gram[i][j] for j in passive] for i in passive], [moment[i] for i in passive]
        )
        if best is None:
            # The newest column depends on the others: leave it out.
            passive.pop()
            return False
        if all(value > 0.0 for value in best):
            for i, value in zip(passive, best, strict=True):
                x[i] = value
            return True
        step = min(
            x[i] / (x[i] - value) for i, value in zip(passive, best, strict=True) if value <= 0.0
        )
        for i, value in zip(passive, best, strict=True):
            x[i] += step * (value - x[i])
        for i in [i for i in passive if x[i] <= 1e-15]:
            x[i] = 0.0
            passive.remove(i)
    return True


def _solve_symmetric(matrix: Matrix, right: Vector) -> Vector | None:
    """Gauss elimination with request pivots; None if the matrix is singular."""
    size = len(right)
    a = [[*request, value] for request, value in zip(matrix, right, strict=True)]
    for column in range(size):
        pivot = max(range(column, size), key=lambda i: abs(a[i][column]))
        if abs(a[pivot][column]) < 1e-13:
            return None
        a[column], a[pivot] = a[pivot], a[column]
        for i in range(column + 1, size):
            factor = a[i][column] / a[column][column]
            for j in range(column, size + 1):
                a[i][j] -= factor * a[column][j]
    x = [0.0] * size
    for i in reversed(range(size)):
        tail = sum(a[i][j] * x[j] for j in range(i + 1, size))
        x[i] = (a[i][size] - tail) / a[i][i]
    return x


# --- The steps a profile is measured from: enough to tell the coefficients apart.


# What is beyond an engine's chunk size, slots or pool is left out: an accelerator's chunks and
# batches are ten times as large as a processor's.
CHUNK_TOKENS = (8, 16, 48, 128, 256, 512, 1024, 2048, 4096, 8192)
CHUNK_CONTEXT = (0, 256, 1024)
DECODE_REQUESTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
DECODE_CONTEXT = (64, 512, 1200)
MIXED_REQUESTS = (1, 4, 12, 64)
MIXED_CONTEXT = (128, 1024)
MIXED_CHUNKS = ((8, 512), (16, 0), (64, 512), (192, 0), (384, 256), (1024, 0), (4096, 512))
# A few steps over long contexts: what a fit says of them otherwise follows from how the shorter
# ones bend, and caches bend them.
LONG_CONTEXT = 4000
LONG_DECODE_REQUESTS = (1, 2, 4, 16, 40)
LONG_CHUNKS = (8, 48, 128)
LONG_MIXED = (
    (1, LONG_CONTEXT, (16, 0)),
    (1, LONG_CONTEXT, (64, 512)),
    (1, 128, (64, LONG_CONTEXT)),
    (16, LONG_CONTEXT, (64, 512)),
    (16, LONG_CONTEXT, (1024, 0)),
    (40, LONG_CONTEXT, (384, 256)),
)


@dataclass(frozen=True, slots=True)
class Cell:
    """One step of the grid.

    Attributes:
        decode: Context of every decoding request.
        chunks: ``(num_tokens, context)`` of every prompt chunk.
        armed: It is launched as a step that may be stopped.
    """

    decode: tuple[int, ...] = ()
    chunks: tuple[tuple[int, int], ...] = ()
    armed: bool = False

    @property
    def num_tokens(self) -> int:
        """KV tokens the cell needs."""
        return sum(c + 1 for c in self.decode) + sum(p + c for p, c in self.chunks)

    @property
    def num_requests(self) -> int:
        """Request slots the cell needs."""
        return len(self.decode) + len(self.chunks)


def make_grid(chunk_tokens: int, pool_tokens: int, slots: int, context_tokens: int) -> list[Cell]:
    """The cells an engine can hold.

    Args:
        chunk_tokens: Most prompt tokens of one step.
        pool_tokens: KV tokens. Half of them bound a cell: offline requests may hold the rest while
            the grid is measured.
        slots: Request slots.
        context_tokens: Longest sequence of the model.
    """
    room = pool_tokens // 2
    chunks = sorted({min(p, chunk_tokens) for p in CHUNK_TOKENS})
    cells = [Cell(chunks=((p, c),)) for p in chunks for c in CHUNK_CONTEXT]
    cells += [Cell(chunks=((p // 2, 0), (p - p // 2, 256))) for p in chunks if p >= 48]
    cells += [
        Cell(decode=(c,) * n) for n in DECODE_REQUESTS for c in _contexts(DECODE_CONTEXT, n, room)
    ]
    cells += [
        Cell(decode=(c,) * n, chunks=((p, start),))
        for n in MIXED_REQUESTS
        for p, start in MIXED_CHUNKS
        for c in _contexts(MIXED_CONTEXT, n, room - p - start)
        if p <= chunk_tokens
    ]
    cells += [Cell(decode=(LONG_CONTEXT,) * n) for n in LONG_DECODE_REQUESTS]
    cells += [Cell(chunks=((p, LONG_CONTEXT),)) for p in LONG_CHUNKS if p <= chunk_tokens]
    cells += [
        Cell(decode=(c,) * n, chunks=(chunk,))
        for n, c, chunk in LONG_MIXED
        if chunk[0] <= chunk_tokens
    ]
    return [
        cell
        for cell in cells
        if cell.num_tokens <= room
        and cell.num_requests <= slots
        and all(p + c < context_tokens for p, c in cell.chunks)
        and all(c < context_tokens for c in cell.decode)
    ]


def armed_cells(cells: Iterable[Cell], eager_modes: Collection[SafepointMode]) -> list[Cell]:
    """Those of the cells that would leave their captured graph as steps that may be stopped.

    Args:
        cells: The grid.
        eager_modes: Modes in which they do.
    """
    armed = []
    for cell in cells:
        mode = SafepointMode.DROP if cell.decode else SafepointMode.ABORT
        if cell.chunks and mode in eager_modes:
            armed.append(replace(cell, armed=True))
    return armed


def _contexts(wanted: tuple[int, ...], num_requests: int, room: int) -> list[int]:
    """The wanted contexts, in a small pool as long as so many requests can have, each once."""
    longest = room // num_requests - 1
    return sorted({min(context, longest) for context in wanted if longest > 0})


BATCH_COLUMN = 5  # of StepLoad.regressors
KNEES = (32, 48, 64, 96, 128, 192, 256, 384, 512)
"""Token counts at which the plateau of a device's matrices may end."""
WORTH_A_KNEE = 0.9


@dataclass(frozen=True, slots=True)
class Sample:
    """One measured step.

    Attributes:
        decode: Context of every decoding request.
        chunks: ``(num_tokens, context_tokens)`` of every prompt chunk.
        measured_s: Its duration.
        armed: It was launched as a step that may be stopped, outside captured graphs of prefills.
    """

    decode: tuple[int, ...]
    chunks: tuple[tuple[int, int], ...]
    measured_s: float
    armed: bool = False

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
    best: dict[tuple[object, ...], Sample] = {}
    for sample in samples:
        key = (sample.decode, sample.chunks, sample.armed)
        if key not in best or sample.measured_s < best[key].measured_s:
            best[key] = sample
    return list(best.values())


def fit_coefficients(
    samples: Sequence[Sample], prefill_token_steps: tuple[int, ...] = ()
) -> Coefficients:
    """Relative non-negative least squares over steps of one kind, at the knee that fits best.

    A knee is only taken if it lowers the squared error by a tenth: noise bends, too.

    Args:
        samples: The steps.
        prefill_token_steps: Sizes of the graphs they were replayed from, if they were.

    Raises:
        ValueError: If a duration is not positive or there is no sample.
    """
    for sample in samples:
        if sample.measured_s <= 0.0:
            raise ValueError(f"a step cannot take {sample.measured_s} s")
    loads = [sample.load() for sample in samples]
    times_s = [sample.measured_s for sample in samples]
    sizes = [
        graph_tokens(load.num_tokens, prefill_token_steps) or load.num_tokens for load in loads
    ]
    best, error = _fit_at(loads, sizes, times_s, 0.0)
    worth = WORTH_A_KNEE * error
    for knee in KNEES:
        # Both sides of the knee have to be measured.
        if sum(size < knee for size in sizes) < 3 or sum(size > knee for size in sizes) < 3:
            continue
        found, found_error = _fit_at(loads, sizes, times_s, float(knee))
        if found_error < min(worth, error):
            best, error = found, found_error
    return best


def _fit_at(
    loads: Sequence[StepLoad], sizes: Sequence[int], times_s: Sequence[float], knee: float
) -> tuple[Coefficients, float]:
    """The fit with that knee, and its squared relative error; ``sizes`` are tokens computed."""
    # Where no step of this kind has a lone token, "more than one" is the constant: were it fitted
    # beside it, a lone token (a prompt that is in the cache but for its last) would cost nothing.
    all_batched = all(load.num_tokens > 1 for load in loads)
    requests = []
    for load, size, time_s in zip(loads, sizes, times_s, strict=True):
        regressors = list(load.regressors(knee, size))
        if all_batched:
            regressors[BATCH_COLUMN] = 0.0
        requests.append([value / time_s for value in regressors])
    found = nnls(requests, [1.0] * len(requests))
    error = sum((sum(map(mul, request, found)) - 1.0) ** 2 for request in requests)
    token, attention, context, square, request_s, batch, constant, hinge = found
    k = Coefficients(
        token, attention, context, square, request_s, constant, batch, hinge, knee if hinge else 0.0
    )
    return k, error


PREFILL_ORDER = StepKind.PREFILL, StepKind.MIXED, StepKind.DECODE
MIXED_ORDER = StepKind.MIXED, StepKind.PREFILL, StepKind.DECODE


def fit_model(
    samples: Iterable[Sample],
    decode_row_steps: tuple[int, ...] = (),
    prefill_token_steps: tuple[int, ...] = (),
) -> PolynomialModel:
    """One fit per executor; a kind without samples borrows the fit nearest to it.

    Decoding requests in a mixed step run through the prefill executor, so mixed and prefill steps
    stand in for each other; decode borrows from prefill, and prefill from decode, as a last resort.
    Where prefill graphs are captured, steps outside them have fits of their own.

    Raises:
        ValueError: If there is no sample at all.
    """
    replayed: dict[StepKind, list[Sample]] = {}
    eager: dict[StepKind, list[Sample]] = {}
    for sample in smallest_per_load(samples):
        load = sample.load()
        padded = graph_tokens(load.num_tokens, prefill_token_steps)
        if sample.armed and not prefill_token_steps:
            continue  # nobody plans with it
        launched = load.chunk_requests and prefill_token_steps and (sample.armed or not padded)
        (eager if launched else replayed).setdefault(load.kind, []).append(sample)
    replayed.pop(StepKind.IDLE, None)
    groups = replayed or eager
    if not groups:
        raise ValueError("no measured steps to fit")
    fits = {
        kind: fit_coefficients(group, () if kind is StepKind.DECODE else prefill_token_steps)
        for kind, group in groups.items()
    }
    eager_fits = {kind: fit_coefficients(group) for kind, group in eager.items()}
    decode = _nearest(fits, StepKind.DECODE, StepKind.MIXED, StepKind.PREFILL)
    prefill, mixed = _nearest(fits, *PREFILL_ORDER), _nearest(fits, *MIXED_ORDER)
    assert decode is not None
    assert prefill is not None
    assert mixed is not None
    return PolynomialModel(
        decode=decode,
        prefill=prefill,
        mixed=mixed,
        decode_row_steps=decode_row_steps,
        prefill_token_steps=prefill_token_steps,
        eager_prefill=_nearest(eager_fits, *PREFILL_ORDER),
        eager_mixed=_nearest(eager_fits, *MIXED_ORDER),
    )


def _nearest(fits: dict[StepKind, Coefficients], *kinds: StepKind) -> Coefficients | None:
    return next((fits[kind] for kind in kinds if kind in fits), None)


def fit_with_holdout(
    samples: Iterable[Sample],
    every: int = 4,
    decode_row_steps: tuple[int, ...] = (),
    prefill_token_steps: tuple[int, ...] = (),
) -> Fit:
    """Fit to all samples, and report the error of a fit that left every ``every``-th load out."""
    unique = smallest_per_load(samples)
    kept: list[Sample] = []
    held: list[Sample] = []
    counts: dict[tuple[StepKind, bool], int] = {}
    for sample in unique:
        kind = sample.load().kind, sample.armed
        counts[kind] = counts.get(kind, 0) + 1
        (held if counts[kind] % every == 0 else kept).append(sample)
    errors: dict[StepKind, FitError] = {}
    if held and kept:
        trial = fit_model(kept, decode_row_steps, prefill_token_steps)
        errors = errors_by_kind(trial, held)
    return Fit(fit_model(unique, decode_row_steps, prefill_token_steps), errors)


def errors_by_kind(model: PolynomialModel, samples: Iterable[Sample]) -> dict[StepKind, FitError]:
    """Relative errors of a model over samples, per step kind."""
    by_kind: dict[StepKind, list[float]] = {}
    for sample in samples:
        load = sample.load()
        ran_as = model.eager if sample.armed else model
        error = abs(ran_as.predict(load) - sample.measured_s) / sample.measured_s
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
