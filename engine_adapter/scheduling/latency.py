"""The step-time polynomial, one fit per executor (ConServe v2, section 4.2).

    T = k_token P + k_hinge max(0, P - knee) + k_attention A + k_context S + k_square Q
        + k_request R + k_batch B + k_constant

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
from engine_adapter.scheduling.prefill_graphs import graph_tokens, size_below
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

    def regressors(self, knee: float = 0.0, padded_tokens: int = 0) -> tuple[float, ...]:
        """``(P, A, S, Q, R, B, 1, max(0, P - knee))``, the order of a coefficient vector.

        Without a knee the last is zero: there is no hinge. A step that is replayed from a graph
        computes the graph's tokens, ``padded_tokens``.
        """
        num_tokens = padded_tokens or self.decode_requests + self.chunk_tokens
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

    @property
    def eager(self) -> LatencyModel:
        """The model of steps that are kept out of prefill graphs; itself where there are none."""
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

    def whole_tokens(self, load: StepLoad, context_tokens: int, num_tokens: int) -> int:
        """How many of a chunk's tokens, which fit and do not finish its prompt, are best taken."""
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
        prefill_token_steps: Token counts a captured prefill graph exists for, likewise.
        eager_prefill: Fit for prefill chunks that run outside those graphs; None: as inside.
        eager_mixed: The same with decoding requests.
    """

    def __init__(
        self,
        decode: Coefficients,
        prefill: Coefficients,
        mixed: Coefficients,
        decode_row_steps: tuple[int, ...] = (),
        prefill_token_steps: tuple[int, ...] = (),
        eager_prefill: Coefficients | None = None,
        eager_mixed: Coefficients | None = None,
    ) -> None:
        self.decode = decode
        self.prefill = prefill
        self.mixed = mixed
        self.decode_row_steps = tuple(sorted(decode_row_steps))
        self.prefill_token_steps = tuple(sorted(prefill_token_steps))
        self.eager_prefill = eager_prefill
        self.eager_mixed = eager_mixed
        self.eager = self
        if self.prefill_token_steps:
            self.eager = PolynomialModel(
                decode, eager_prefill or prefill, eager_mixed or mixed, self.decode_row_steps
            )

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

        Where the step would be padded beyond the budget, as many as fill the graph below.
        """
        if limit_tokens <= 0:
            return 0
        if math.isinf(budget_s):
            return limit_tokens
        fit = self._max_unpadded(load, context_tokens, limit_tokens, budget_s)
        if not self.prefill_token_steps:
            return fit
        fit = self._max_replayed(load, context_tokens, fit, budget_s)
        launched = self.eager.max_tokens(load, context_tokens, limit_tokens, budget_s)
        replayed = graph_tokens(load.num_tokens + launched, self.prefill_token_steps)
        return fit if replayed else max(launched, fit)

    def whole_tokens(self, load: StepLoad, context_tokens: int, num_tokens: int) -> int:
        """So many of a chunk's tokens that the step fills a graph, if it has more of them a second.

        The rest of the chunk is computed in another step, so both have to be worth their time.
        """
        steps = self.prefill_token_steps
        fewer = size_below(load.num_tokens + num_tokens, steps) - load.num_tokens if steps else 0
        if not 0 < fewer < num_tokens:
            return num_tokens
        whole_s = self._with_chunk_s(load, context_tokens, fewer)
        padded_s = self._with_chunk_s(load, context_tokens, num_tokens)
        return fewer if fewer * padded_s > num_tokens * whole_s else num_tokens

    def _max_replayed(self, load: StepLoad, context_tokens: int, fit: int, budget_s: float) -> int:
        """Most tokens of a step that is replayed, given how many fit if nothing is padded."""
        steps, used = self.prefill_token_steps, load.num_tokens
        num_tokens = min(used + fit, steps[-1]) - used
        if num_tokens > 0 and graph_tokens(used + num_tokens, steps):
            took_s = self._with_chunk_s(load, context_tokens, num_tokens)
            if took_s <= budget_s * (1.0 + 1e-12):
                return num_tokens
        return max(0, size_below(used + num_tokens, steps) - used)

    def _with_chunk_s(self, load: StepLoad, context_tokens: int, num_tokens: int) -> float:
        joined = load.copy()
        joined.add_chunk(num_tokens, context_tokens)
        return self.predict(joined)

    def _max_unpadded(
        self, load: StepLoad, context_tokens: int, limit_tokens: int, budget_s: float
    ) -> int:
        """Most prompt tokens, were no step padded.

        The cost of ``n`` tokens at context ``c`` is ``fixed + b n + a n^2`` with

            a = k_attention + k_square
            b = k_token + k_attention c + k_context + 2 k_square c
            fixed = k_request + k_context c + k_square c^2 + k_batch

        so the answer is the positive root of a quadratic; from the knee on ``b`` is steeper by
        ``k_hinge``. A lone token is charged as a batch.
        """
        k = self.mixed if load.decode_requests else self.prefill
        c = context_tokens
        base_s = _seconds(
            k,
            load.decode_requests + load.chunk_tokens,
            load.decode_requests + load.chunk_requests + 1,
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

    def _evaluate(
        self,
        kind: StepKind,
        decode_requests: int,
        chunk_requests: int,
        chunk_tokens: int,
        attention: int,
        context: int,
        square: int,
    ) -> float:
        requests = decode_requests
        if kind is StepKind.DECODE:
            if self.decode_row_steps:
                requests = next(
                    (step for step in self.decode_row_steps if step >= requests), requests
                )
            return _seconds(self.decode, requests, requests, attention, context, square)
        k = self.mixed if kind is StepKind.MIXED else self.prefill
        num_tokens, requests = requests + chunk_tokens, requests + chunk_requests
        if self.prefill_token_steps:
            padded = graph_tokens(num_tokens, self.prefill_token_steps)
            if not padded:
                k = self.eager.mixed if kind is StepKind.MIXED else self.eager.prefill
            num_tokens = padded or num_tokens
        return _seconds(k, num_tokens, requests, attention, context, square)


def _seconds(
    k: Coefficients,
    num_tokens: int,
    requests: int,
    attention: int,
    context: int,
    square: int,
    batched: bool = False,
) -> float:
    """The polynomial; ``batched`` charges a lone token as a batch."""
    return (
        k.k_token * num_tokens
        + k.k_attention * attention
        + k.k_context * context
        + k.k_square * square
        + k.k_request * requests
        + (k.k_batch if batched or num_tokens > 1 else 0.0)
        + (k.k_hinge * max(0.0, num_tokens - k.knee) if k.k_hinge else 0.0)
        + k.k_constant
    )


def _root(a: float, b: float, room_s: float) -> float:
    """The largest ``n`` with ``b n + a n^2 <= room_s``."""
    if a > 0.0:
        # 2 room / (b + sqrt(b^2 + 4 a room)) does not cancel when a is tiny
        return 2.0 * room_s / (b + math.sqrt(b * b + 4.0 * a * room_s))
    return room_s / b if b > 0.0 else math.inf


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
        eager = profiled.eager
        self.eager = self if eager is profiled else CalibratedModel(eager, steps)

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

    def whole_tokens(self, load: StepLoad, context_tokens: int, num_tokens: int) -> int:
        return self._profiled.whole_tokens(load, context_tokens, num_tokens)
