"""How long a step may take."""

from __future__ import annotations

import math
from collections.abc import Sequence

from engine_adapter.scheduling.builder import PlanBuilder
from engine_adapter.scheduling.latency import LatencyModel, StepLoad
from engine_adapter.scheduling.request import RequestRow
from engine_adapter.scheduling.snapshot import ReadyRows, Snapshot

# --- What online requests have been like: how long their prompts are, and how often one comes.


class OnlineArrivals:
    """The running mean of online prompts, for reserving room before the next one arrives.

    Args:
        initial_tokens: Prompt length assumed until a request has been seen.
        weight: Weight of the newest prompt once enough have been seen.
    """

    def __init__(self, initial_tokens: int, weight: float = 0.1) -> None:
        """Start from the assumption."""
        self._mean = float(initial_tokens)
        self._weight = weight
        self._last_sequence = -1
        self._count = 0

    def update(self, snapshot: Snapshot) -> None:
        """Take in the online requests that arrived since the last snapshot."""
        newest = self._last_sequence
        for row in snapshot.online_waiting:
            if row.sequence > self._last_sequence:
                self._count += 1
                weight = max(self._weight, 1.0 / self._count)
                self._mean += weight * (row.prompt_tokens - self._mean)
                newest = max(newest, row.sequence)
        self._last_sequence = newest

    @property
    def prompt_tokens(self) -> int:
        """Expected length of the next prompt."""
        return max(1, round(self._mean))


# Behind so many prompts the next one is late in any case, and planning has its price.
MAX_PROMPTS_WAITING = 32
# Of the time that a prompt has left, what cutting it may take: others come meanwhile.
CUT_SHARE = 0.5


def online_prefill_budget_s(builder: PlanBuilder, rows: list[RequestRow], decode_s: float) -> float:
    """Bound for a step that computes online prompt tokens while online requests decode.

    Prompts are cut so that the gap of the decoding requests stays inside the TBT target, as in
    ConServe v2, as long as those that wait have their first token in half of the time that is left
    to their TTFT targets: requests that come meanwhile wait behind them. When one would not,
    the cut is lifted: one long gap for the decoding requests costs less than a missed first
    token, and stretching a prompt over many steps pays the constant part of a step many times.
    For a prompt behind the oldest it is lifted only if it is in time then.

    Args:
        builder: The step, with the online decoding requests taken that share it.
        rows: Online requests with prompt tokens left, oldest first.
        decode_s: Time of the decode step that follows, if the decoding requests have one of their
            own.
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
        late = -(-num_tokens // per_step) * tbt_s > CUT_SHARE * left_s
        if late and (row is rows[0] or _uncut_s(builder, num_tokens) <= left_s):
            return math.inf
    return tbt_s - decode_s


def cut_budget_s(builder: PlanBuilder, rows: list[RequestRow], decode_s: float) -> float:
    """The TBT target alone, unless no token of the oldest prompt fits it."""
    if not builder.has_decode and decode_s == 0.0:
        return math.inf
    budget_s = builder.snapshot.slo.tbt_s - decode_s
    return budget_s if builder.chunk_room(rows[0], budget_s) > 0 else math.inf


def _uncut_s(builder: PlanBuilder, num_tokens: int) -> float:
    """Predicted time of so many prompt tokens and the decoding requests of the step, uncut."""
    load = builder.load.copy()
    load.add_chunk(num_tokens, 0)
    return builder.model.predict(load)


def next_token_slack_s(builder: PlanBuilder, rows: ReadyRows) -> float:
    """How long a step may last for the next token of every online request that decodes.

    A request with ``k`` tokens has two deadlines for the next one:

        last token + t_TBT          and          first token + k t_TPOT

    All of them are in every step, so the first is the TBT target itself. Against the second, tokens
    that came early bank time for the steps to come. A step no longer than ``t_TPOT`` lets no
    request fall further behind, so who is late already does not bound it more.

    Args:
        builder: The step.
        rows: The online requests that decode.
    """
    snapshot = builder.snapshot
    slo = snapshot.slo
    if math.isinf(slo.tpot_s):
        return slo.tbt_s
    slack_s = slo.tbt_s
    for row in rows.rows:
        if row.first_token_at_s >= 0.0:
            num_tokens = row.computed_tokens - row.prompt_tokens + 1
            due_s = row.first_token_at_s + num_tokens * slo.tpot_s - snapshot.now_s
            slack_s = min(slack_s, due_s)
    return max(slack_s, min(slo.tpot_s, slo.tbt_s))


def first_token_slack_s(builder: PlanBuilder, rows: Sequence[RequestRow]) -> float:
    """How long a step may last for the first tokens that wait for it; infinite if none does.

    A prompt that the step finishes has its token at the step's end. What is left of the others is
    computed after it, oldest first, in at least one step more:

        T <= arrival + t_TTFT - now - T(what is left up to this prompt)

    Args:
        builder: The step, with its online requests taken.
        rows: Online requests that had prompt tokens left before it, oldest first.
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
    longest_s: float,
    prompt_tokens: int,
) -> float:
    """Bound for a step without online requests.

    One that cannot be stopped has to end early enough for a typical online prompt that arrives at
    its beginning:

        T <= w,  w = t_TTFT - T(prefill of a typical online prompt)

    One that can be stopped may last `longest_s`. No bound is less than the TBT target, under which
    nothing useful fits.

    Args:
        snapshot: Targets and overhead.
        model: Predicts steps.
        stoppable: Whether a safepoint can stop the step.
        longest_s: The longest step that can be stopped.
        prompt_tokens: Length of a typical online prompt.
    """
    if stoppable:
        return longest_s
    prompt = StepLoad()
    prompt.add_chunk(prompt_tokens, 0)
    room_s = snapshot.slo.ttft_s - model.predict(prompt) - snapshot.overhead_s
    return max(room_s, snapshot.slo.tbt_s)
