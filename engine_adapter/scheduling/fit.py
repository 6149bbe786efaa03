"""Fits the step-time polynomial to measured steps (ConServe v2, section 4.2).

Errors are weighted relatively: a step of 5 ms and one of 500 ms count the same per cent. Several
measurements of the same load are reduced to their smallest, which is the one least disturbed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import mul

from engine_adapter.scheduling.latency import Coefficients, PolynomialModel, StepLoad
from engine_adapter.scheduling.plan import StepKind

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
    """

    decode: tuple[int, ...] = ()
    chunks: tuple[tuple[int, int], ...] = ()

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
    """One measured step: its requests as ``(num_tokens, context_tokens)`` and its duration."""

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
    """Relative non-negative least squares over steps of one kind, at the knee that fits best.

    A knee is only taken if it lowers the squared error by a tenth: noise bends, too.

    Raises:
        ValueError: If a duration is not positive or there is no sample.
    """
    for sample in samples:
        if sample.measured_s <= 0.0:
            raise ValueError(f"a step cannot take {sample.measured_s} s")
    loads = [sample.load() for sample in samples]
    times_s = [sample.measured_s for sample in samples]
    best, error = _fit_at(loads, times_s, 0.0)
    sizes = sorted(load.num_tokens for load in loads)
    worth = WORTH_A_KNEE * error
    for knee in KNEES:
        # Both sides of the knee have to be measured.
        if sum(size < knee for size in sizes) < 3 or sum(size > knee for size in sizes) < 3:
            continue
        found, found_error = _fit_at(loads, times_s, float(knee))
        if found_error < min(worth, error):
            best, error = found, found_error
    return best


def _fit_at(
    loads: Sequence[StepLoad], times_s: Sequence[float], knee: float
) -> tuple[Coefficients, float]:
    """The fit with that knee, and its squared relative error."""
    # Where no step of this kind has a lone token, "more than one" is the constant: were it fitted
    # beside it, a lone token (a prompt that is in the cache but for its last) would cost nothing.
    all_batched = all(load.num_tokens > 1 for load in loads)
    requests = []
    for load, time_s in zip(loads, times_s, strict=True):
        regressors = list(load.regressors(knee))
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
