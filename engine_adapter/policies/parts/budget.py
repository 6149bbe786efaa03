"""How long a step may take."""

from __future__ import annotations

import math
from collections.abc import Sequence

from engine_adapter.core.request import RequestRow
from engine_adapter.core.slo import Slo
from engine_adapter.core.snapshot import Snapshot
from engine_adapter.latency.load import StepLoad
from engine_adapter.latency.model import LatencyModel
from engine_adapter.policies.parts.builder import PlanBuilder

# Behind so many prompts the next one is late in any case, and planning has its price.
MAX_PROMPTS_WAITING = 32


class TypicalPrompt:
    """Running mean of online prompt lengths, for reserving room before the next one arrives.

    Args:
        initial_tokens: Length assumed until an online request has been seen.
        weight: Weight of the newest prompt once enough have been seen.
    """

    def __init__(self, initial_tokens: int, weight: float = 0.1) -> None:
        """Start from the assumption."""
        self._mean = float(initial_tokens)
        self._weight = weight
        self._last_sequence = -1
        self._count = 0

    def update(self, snapshot: Snapshot) -> None:
        """Take in the online rows that arrived since the last snapshot."""
        newest = self._last_sequence
        for row in snapshot.online_waiting:
            if row.sequence > self._last_sequence:
                self._count += 1
                weight = max(self._weight, 1.0 / self._count)
                self._mean += weight * (row.prompt_tokens - self._mean)
                newest = max(newest, row.sequence)
        self._last_sequence = newest

    @property
    def tokens(self) -> int:
        """Expected length of the next online prompt."""
        return max(1, round(self._mean))


def online_prefill_budget_s(builder: PlanBuilder, rows: list[RequestRow], decode_s: float) -> float:
    """Bound for a step that computes online prompt tokens while online rows decode.

    Prompts are cut so that the gap of the decoding rows stays inside the TBT target, as in
    ConServe v2, as long as those that wait still meet their TTFT targets that way. When one would
    not, the cut is lifted: one long gap for the decoding rows costs less than a missed first
    token, and stretching a prompt over many steps pays the constant part of a step many times.
    For a prompt behind the oldest it is lifted only if it is in time then.

    Args:
        builder: The step, with the online decode rows taken that share it.
        rows: Online rows with prompt tokens left, oldest first.
        decode_s: Time of the decode step that follows, if the decode rows have one of their own.
    """
    snapshot = builder.snapshot
    if not builder.has_decode and decode_s == 0.0:
        return math.inf
    tbt_s = snapshot.slo.tbt_s
    per_step = builder.chunk_room(rows[0], tbt_s - decode_s)
    if per_step <= 0:
        return math.inf
    num_tokens = 0
    for row in rows[:MAX_PROMPTS_WAITING]:
        num_tokens += row.remaining_tokens
        left_s = row.arrival_at_s + snapshot.slo.ttft_s - snapshot.now_s
        late = -(-num_tokens // per_step) * tbt_s > left_s
        if late and (row is rows[0] or _uncut_s(builder, num_tokens) <= left_s):
            return math.inf
    return tbt_s - decode_s


def _uncut_s(builder: PlanBuilder, num_tokens: int) -> float:
    """Predicted time of so many prompt tokens and the decode rows of the step, uncut."""
    load = builder.load.copy()
    load.add_chunk(num_tokens, 0)
    return builder.model.predict(load)


def beside_online_budget_s(slo: Slo) -> float:
    """Bound of a step that offline rows share with online ones.

    The TBT target, as in the papers, but at most half the TTFT target: behind a longer step an
    arrival would have no time left for its own prompt.
    """
    return min(slo.tbt_s, slo.ttft_s / 2.0)


def first_token_slack_s(builder: PlanBuilder, rows: Sequence[RequestRow]) -> float:
    """How long a step may last for the first tokens that wait for it; infinite if none does.

    A prompt that the step finishes has its token at the step's end. What is left of the others is
    computed after it, oldest first, in at least one step more:

        T <= arrival + t_TTFT - now - T(what is left up to this prompt)

    Args:
        builder: The step, with its online rows taken.
        rows: Online rows that had prompt tokens left before it, oldest first.
    """
    snapshot = builder.snapshot
    slack_s = math.inf
    left = StepLoad()
    for row in rows[:MAX_PROMPTS_WAITING]:
        due_s = row.arrival_at_s + snapshot.slo.ttft_s - snapshot.now_s
        num_taken = builder.chunk_tokens_of(row)
        if num_taken < row.remaining_tokens:
            left.add_chunk(row.remaining_tokens - num_taken, row.start_tokens + num_taken)
            due_s -= builder.model.predict(left) + snapshot.overhead_s
        slack_s = min(slack_s, due_s)
    return slack_s


def offline_only_budget_s(
    snapshot: Snapshot,
    model: LatencyModel,
    *,
    stoppable: bool,
    factor: float,
    typical_online_tokens: int,
) -> float:
    """Bound for a step without online rows.

    A step that a safepoint can stop may be long: only the work lost by a stop grows with it.
    One that cannot be stopped has to end early enough for an online prompt that arrives at its
    beginning:

        T <= t_TTFT - T(prefill of a typical online prompt)

    but never less than the TBT target, under which nothing useful fits.
    """
    if stoppable:
        return factor * snapshot.slo.ttft_s
    load = StepLoad()
    load.add_chunk(typical_online_tokens, 0)
    room_s = snapshot.slo.ttft_s - model.predict(load) - snapshot.overhead_s
    return max(room_s, snapshot.slo.tbt_s)
