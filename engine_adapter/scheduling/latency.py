"""The step-time polynomial, one fit per executor (ConServe v2, section 4.2).

    T = k_token P + k_hinge max(0, P - knee) + k_attention A + k_context S + k_square Q + k_row R
        + k_batch B + k_constant

with the sums of :mod:`engine_adapter.scheduling.latency`. The paper's k1 (linear layers) and k3
(communication) share the regressor P and are fitted as one. ``k_square`` covers attention that pads
its query to the whole sequence; ``k_request`` covers work per request that depends on no length;
``k_batch`` what a step of more than one token pays for multiplying matrices; ``k_hinge`` the end of
the plateau on which a GPU's matrices cost the same whatever their size. Each is zero where the data
do not ask for it.
"""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass
from typing import Protocol

from engine_adapter.scheduling.plan import FinishedStep, StepKind
from engine_adapter.scheduling.targets import DEFAULT_SHARE

# --- The sums over a step's requests that its duration depends on.
#
# A request that computes ``p`` tokens after ``c`` tokens already in its KV contributes
#
#     P += p      A += p (p + c)      S += p + c      Q += (p + c)^2      R += 1
#
# and the step as a whole B = 1 if P > 1: products of a matrix and a vector become products of two
# matrices, which cost more from the second token on and little for the next ones.
#
# Decoding requests (p = 1) and prefill chunks are summed apart because a step's executor depends on
# which of them are present.


@dataclass(slots=True)
class StepLoad:
    """Running sums; requests are added one at a time.

    Attributes:
        decode_requests: Number of decoding requests.
        decode_context: Sum of ``1 + c`` over them, which is also their attention sum.
        decode_square: Sum of ``(1 + c)^2`` over them.
        chunk_requests: Number of prefill chunks.
        chunk_tokens: Sum of ``p`` over them.
        chunk_attention: Sum of ``p (p + c)``.
        chunk_context: Sum of ``p + c``.
        chunk_square: Sum of ``(p + c)^2``.
    """

    decode_requests: int = 0
    decode_context: int = 0
    decode_square: int = 0
    chunk_requests: int = 0
    chunk_tokens: int = 0
    chunk_attention: int = 0
    chunk_context: int = 0
    chunk_square: int = 0

    def add_decode(self, context_tokens: int) -> None:
        """Add a request that computes one token after ``context_tokens``."""
        length = context_tokens + 1
        self.decode_requests += 1
        self.decode_context += length
        self.decode_square += length * length

    def add_chunk(self, num_tokens: int, context_tokens: int) -> None:
        """Add a chunk of ``num_tokens`` prompt tokens after ``context_tokens``."""
        length = num_tokens + context_tokens
        self.chunk_requests += 1
        self.chunk_tokens += num_tokens
        self.chunk_attention += num_tokens * length
        self.chunk_context += length
        self.chunk_square += length * length

    def copy(self) -> StepLoad:
        """An independent load with the same sums."""
        return StepLoad(
            self.decode_requests,
            self.decode_context,
            self.decode_square,
            self.chunk_requests,
            self.chunk_tokens,
            self.chunk_attention,
            self.chunk_context,
            self.chunk_square,
        )

    @property
    def kind(self) -> StepKind:
        """Which executor runs this load."""
        if self.decode_requests:
            return StepKind.MIXED if self.chunk_requests else StepKind.DECODE
        return StepKind.PREFILL if self.chunk_requests else StepKind.IDLE

    @property
    def num_tokens(self) -> int:
        """Tokens computed: P."""
        return self.decode_requests + self.chunk_tokens

    def regressors(self, knee: float = 0.0) -> tuple[float, ...]:
        """``(P, A, S, Q, R, B, 1, max(0, P - knee))``, the order of a coefficient vector.

        Without a knee the last is zero: there is no hinge.
        """
        num_tokens = self.decode_requests + self.chunk_tokens
        return (
            float(num_tokens),
            float(self.decode_context + self.chunk_attention),
            float(self.decode_context + self.chunk_context),
            float(self.decode_square + self.chunk_square),
            float(self.decode_requests + self.chunk_requests),
            float(self.num_tokens > 1),
            1.0,
            max(0.0, num_tokens - knee) if knee else 0.0,
        )


# --- The seam between policies and whatever knows how long a step takes.


class LatencyModel(Protocol):
    """Predicts step durations and inverts the prediction."""

    @property
    def slowdown(self) -> float:
        """What the profile's predictions are multiplied with now; 1 as profiled."""
        ...

    def predict(self, load: StepLoad) -> float:
        """Duration of a step with this load, in seconds; 0 for an empty one."""
        ...

    def predict_with_decode(self, load: StepLoad, context_tokens: int) -> float:
        """Duration if a decoding request with this much context joined the load."""
        ...

    def max_tokens(
        self, load: StepLoad, context_tokens: int, limit_tokens: int, budget_s: float
    ) -> int:
        """Most prompt tokens of one request that fit beside the load within the budget.

        Args:
            load: Requests already in the step.
            context_tokens: Tokens of the request already in its KV.
            limit_tokens: Upper bound, for example what is left of the prompt.
            budget_s: Bound for the whole step.

        Returns:
            A count in ``[0, limit_tokens]``.
        """
        ...


@dataclass(frozen=True, slots=True)
class Coefficients:
    """Seconds per unit of each regressor; ``knee`` is the token count at which the hinge opens."""

    k_token: float
    k_attention: float
    k_context: float
    k_square: float
    k_request: float
    k_constant: float
    k_batch: float = 0.0
    k_hinge: float = 0.0
    knee: float = 0.0

    def __post_init__(self) -> None:
        """Refuse coefficients under which more work would take less time.

        Raises:
            ValueError: If one is negative or not finite.
        """
        for value in astuple(self):
            if not (value >= 0.0 and math.isfinite(value)):
                raise ValueError(f"latency coefficients must be finite and >= 0, not {self}")


class PolynomialModel:
    """Step times from one coefficient set per executor.

    Args:
        decode: Fit for steps of decoding requests only.
        prefill: Fit for steps of prefill chunks only.
        mixed: Fit for steps with both.
        decode_row_steps: Request counts a captured decode graph exists for; a decode-only step is
            padded to the next of them. Empty when nothing is padded.
    """

    def __init__(
        self,
        decode: Coefficients,
        prefill: Coefficients,
        mixed: Coefficients,
        decode_row_steps: tuple[int, ...] = (),
    ) -> None:
        self.decode = decode
        self.prefill = prefill
        self.mixed = mixed
        self.decode_row_steps = tuple(sorted(decode_row_steps))

    @property
    def slowdown(self) -> float:
        """As profiled: 1."""
        return 1.0

    def predict(self, load: StepLoad) -> float:
        """Duration of a step with this load, in seconds."""
        if not load.decode_requests and not load.chunk_requests:
            return 0.0
        return self._evaluate(
            load.kind,
            load.decode_requests,
            load.chunk_requests,
            load.chunk_tokens,
            load.decode_context + load.chunk_attention,
            load.decode_context + load.chunk_context,
            load.decode_square + load.chunk_square,
        )

    def predict_with_decode(self, load: StepLoad, context_tokens: int) -> float:
        """Duration if a decoding request with this much context joined the load."""
        length = context_tokens + 1
        return self._evaluate(
            StepKind.MIXED if load.chunk_requests else StepKind.DECODE,
            load.decode_requests + 1,
            load.chunk_requests,
            load.chunk_tokens,
            load.decode_context + load.chunk_attention + length,
            load.decode_context + load.chunk_context + length,
            load.decode_square + load.chunk_square + length * length,
        )

    def max_tokens(
        self, load: StepLoad, context_tokens: int, limit_tokens: int, budget_s: float
    ) -> int:
        """Most prompt tokens of one request that fit beside the load.

        The cost of ``n`` tokens at context ``c`` is ``fixed + b n + a n^2`` with

            a = k_attention + k_square
            b = k_token + k_attention c + k_context + 2 k_square c
            fixed = k_row + k_context c + k_square c^2 + k_batch

        so the answer is the positive root of a quadratic; from the knee on ``b`` is steeper by
        ``k_hinge``. A lone token is charged as a batch.
        """
        if limit_tokens <= 0:
            return 0
        if math.isinf(budget_s):
            return limit_tokens
        k = self.mixed if load.decode_requests else self.prefill
        c = context_tokens
        base_s = self._evaluate(
            StepKind.MIXED if load.decode_requests else StepKind.PREFILL,
            load.decode_requests,
            load.chunk_requests + 1,
            load.chunk_tokens,
            load.decode_context + load.chunk_attention,
            load.decode_context + load.chunk_context + c,
            load.decode_square + load.chunk_square + c * c,
            batched=True,
        )
        room_s = budget_s - base_s
        if room_s <= 0.0:
            return 0
        a = k.k_attention + k.k_square
        b = k.k_token + k.k_attention * c + k.k_context + 2.0 * k.k_square * c
        flat = k.knee - load.decode_requests - load.chunk_tokens if k.k_hinge else math.inf
        root = _root(a, b, room_s)
        if root > flat:
            flat = max(0.0, flat)
            root = _root(a, b + k.k_hinge, room_s + k.k_hinge * flat)
        if root >= limit_tokens:
            return limit_tokens
        # The tolerance keeps an exact fit from being lost to the last bit of a float.
        return min(limit_tokens, int(root * (1.0 + 1e-12) + 1e-9))

    def _evaluate(  # noqa: PLR0913
        self,
        kind: StepKind,
        decode_requests: int,
        chunk_requests: int,
        chunk_tokens: int,
        attention: int,
        context: int,
        square: int,
        batched: bool = False,
    ) -> float:
        k = (
            self.decode
            if kind is StepKind.DECODE
            else self.mixed
            if kind is StepKind.MIXED
            else self.prefill
        )
        requests = decode_requests
        if kind is StepKind.DECODE and self.decode_row_steps:
            requests = next((step for step in self.decode_row_steps if step >= requests), requests)
        return (
            k.k_token * (requests + chunk_tokens)
            + k.k_attention * attention
            + k.k_context * context
            + k.k_square * square
            + k.k_request * (requests + chunk_requests)
            + (k.k_batch if batched or requests + chunk_tokens > 1 else 0.0)
            + (k.k_hinge * max(0.0, requests + chunk_tokens - k.knee) if k.k_hinge else 0.0)
            + k.k_constant
        )


def _root(a: float, b: float, room_s: float) -> float:
    """The largest ``n`` with ``b n + a n^2 <= room_s``."""
    if a > 0.0:
        # 2 room / (b + sqrt(b^2 + 4 a room)) does not cancel when a is tiny
        return 2.0 * room_s / (b + math.sqrt(b * b + 4.0 * a * room_s))
    return room_s / b if b > 0.0 else math.inf


# --- The shortest step that is long enough for offline work.

# Exact for a step time that is linear in its tokens, and within some per cent for a bent one.
CHORDS = 3


def efficient_step_s(
    model: LatencyModel, load: StepLoad, bound_s: float, rate_share: float, most_tokens: int
) -> float:
    """Length of the shortest step whose offline rate is high enough.

    Args:
        model: Predicts steps.
        load: The online decoding requests of the step.
        bound_s: Length of the full step.
        rate_share: Share of the full step's rate that is enough.
        most_tokens: Prompt tokens that a step may have.

    Returns:
        At most `bound_s`; `bound_s` itself where nothing fits beside the load.
    """
    if rate_share >= 1.0 or not load.decode_requests:
        return bound_s
    full_tokens = model.max_tokens(load, 0, most_tokens, bound_s)
    if full_tokens <= 0:
        return bound_s
    full_s = _with_tokens_s(model, load, full_tokens)
    enough = rate_share * full_tokens / full_s

    # The rate is enough where T(n) - n / enough <= 0. That is convex, so the chord from one token
    # to a step that is long enough crosses zero at a shorter one that is long enough too.
    low_s, num_tokens, step_s = _with_tokens_s(model, load, 1), full_tokens, full_s
    above = low_s - 1.0 / enough
    for _ in range(CHORDS):
        below = num_tokens / enough - step_s
        if above <= 0.0 or below <= 0.0:
            break
        num_tokens = 1 + math.ceil((num_tokens - 1) * above / (above + below))
        step_s = _with_tokens_s(model, load, num_tokens)
    return min(bound_s, step_s)


def _with_tokens_s(model: LatencyModel, load: StepLoad, num_tokens: int) -> float:
    mixed = load.copy()
    mixed.add_chunk(num_tokens, 0)
    return model.predict(mixed)


# --- Follows how long steps take now, beside what the profile says of them.
#
# Two numbers, of all kinds of step together:
#
# - the *slowdown*, an exponentially weighted mean of measured over profiled time, by which every
#   prediction is multiplied: a busy machine is slower at everything;
# - the *quantile* of measured over predicted time, by which every budget is divided: what is
#   planned to end in time then does so in as many steps as the operator asks for. It moves after
#   each step,
#
#       longer    q <- q (1 + PACE SHARE)
#       shorter   q <- q (1 - PACE (1 - SHARE))
#
#   and rests where SHARE of the steps are shorter (Robbins and Monro, Annals of Mathematical
#   Statistics 22:3, 1951). It counts every step, so it comes back from wherever it was.

SLOWDOWN_WEIGHT = 0.2
"""Of the newest step in the slowdown: a machine's speed changes within seconds."""

LOWEST_SLOWDOWN, HIGHEST_SLOWDOWN = 0.5, 2.0
"""Bounds of the slowdown, and of what one step may contribute: a single stall does not rule."""

QUANTILE_PACE = 0.02
MOST_QUANTILE = 2.0


class StepTimes:
    """Slowdown and quantile of step times.

    Args:
        slowdown: Follow the slowdown; otherwise it stays 1.
        quantile: Follow the quantile; otherwise it stays 1.

    Attributes:
        slowdown: What the profile's predictions are multiplied with.
    """

    def __init__(self, *, slowdown: bool = True, quantile: bool = True) -> None:
        self.slowdown = 1.0
        self._quantiles = {DEFAULT_SHARE: 1.0}
        self._follows = (slowdown, quantile)

    def quantile(self, share: float) -> float:
        """Measured over predicted time that this share of the steps keeps below; at least 1.

        A share other than the usual one is followed from when it is first asked for.
        """
        return self._quantiles.setdefault(share, 1.0)

    def observe(self, step: FinishedStep) -> None:
        """Take in one finished step; steps that say nothing about the model are skipped."""
        if not step.is_comparable:
            return
        measured_s, predicted_s = step.outcome.measured_s, step.plan.predicted_s
        if self._follows[0]:
            ratio = measured_s * step.plan.calibration / predicted_s
            ratio = min(HIGHEST_SLOWDOWN, max(LOWEST_SLOWDOWN, ratio))
            self.slowdown += SLOWDOWN_WEIGHT * (ratio - self.slowdown)
        if self._follows[1]:
            for share, quantile in list(self._quantiles.items()):
                is_longer = measured_s > quantile * predicted_s
                change = QUANTILE_PACE * share if is_longer else -QUANTILE_PACE * (1.0 - share)
                self._quantiles[share] = min(MOST_QUANTILE, max(1.0, quantile * (1.0 + change)))


class CalibratedModel:
    """The profile's predictions times the slowdown.

    Args:
        profiled: The model as it was measured.
        steps: Follows finished steps; its slowdown moves between plans, never during one.
    """

    def __init__(self, profiled: LatencyModel, steps: StepTimes) -> None:
        self._profiled = profiled
        self._steps = steps

    @property
    def slowdown(self) -> float:
        return self._steps.slowdown

    def predict(self, load: StepLoad) -> float:
        return self._profiled.predict(load) * self._steps.slowdown

    def predict_with_decode(self, load: StepLoad, context_tokens: int) -> float:
        return self._profiled.predict_with_decode(load, context_tokens) * self._steps.slowdown

    def max_tokens(
        self, load: StepLoad, context_tokens: int, limit_tokens: int, budget_s: float
    ) -> int:
        bound_s = budget_s / self._steps.slowdown
        return self._profiled.max_tokens(load, context_tokens, limit_tokens, bound_s)
