"""How long a step may take."""

from __future__ import annotations

import math
from collections.abc import Sequence

from engine_adapter.scheduling.builder import PlanBuilder, rows_that_fit
from engine_adapter.scheduling.latency import LatencyModel, StepLoad
from engine_adapter.scheduling.plan import FinishedStep, StepKind
from engine_adapter.scheduling.request import RequestRow
from engine_adapter.scheduling.snapshot import ReadyRows, Snapshot
from engine_adapter.scheduling.targets import Slo

# --- What online requests have been like: how long their prompts are, and how often one comes.


RATE_HORIZON_S = 60.0


class OnlineArrivals:
    """Running means over online requests, for reserving room before the next one arrives.

    Args:
        initial_tokens: Prompt length assumed until a request has been seen.
        weight: Weight of the newest prompt once enough have been seen.
    """

    def __init__(self, initial_tokens: int, weight: float = 0.1) -> None:
        """Start from the assumption, and without arrivals."""
        self._mean = float(initial_tokens)
        self._weight = weight
        self._last_sequence = -1
        self._count = 0
        self._per_s = 0.0
        self._last_s: float | None = None

    def update(self, snapshot: Snapshot) -> None:
        """Take in the online rows that arrived since the last snapshot."""
        if self._last_s is not None:
            self._per_s *= math.exp(-max(0.0, snapshot.now_s - self._last_s) / RATE_HORIZON_S)
        self._last_s = snapshot.now_s
        newest = self._last_sequence
        for row in snapshot.online_waiting:
            if row.sequence > self._last_sequence:
                self._count += 1
                self._per_s += 1.0 / RATE_HORIZON_S
                weight = max(self._weight, 1.0 / self._count)
                self._mean += weight * (row.prompt_tokens - self._mean)
                newest = max(newest, row.sequence)
        self._last_sequence = newest

    @property
    def prompt_tokens(self) -> int:
        """Expected length of the next prompt."""
        return max(1, round(self._mean))

    @property
    def per_s(self) -> float:
        """Requests per second of late, the newest minute above all; 0 without any."""
        return self._per_s


# Behind so many prompts the next one is late in any case, and planning has its price.
MAX_PROMPTS_WAITING = 32
# Of the time that a prompt has left, what cutting it may take: others come meanwhile.
CUT_SHARE = 0.5
# Of the time that an arrival could wait, what offline steps take without counting it as a loss.
FREE_SHARE = 0.5


def online_prefill_budget_s(builder: PlanBuilder, rows: list[RequestRow], decode_s: float) -> float:
    """Bound for a step that computes online prompt tokens while online rows decode.

    Prompts are cut so that the gap of the decoding rows stays inside the TBT target, as in
    ConServe v2, as long as those that wait have their first token in half of the time that is left
    to their TTFT targets: requests that come meanwhile wait behind them. When one would not,
    the cut is lifted: one long gap for the decoding rows costs less than a missed first
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
        late = -(-num_tokens // per_step) * tbt_s > CUT_SHARE * left_s
        if late and (row is rows[0] or _uncut_s(builder, num_tokens) <= left_s):
            return math.inf
    return tbt_s - decode_s


def _uncut_s(builder: PlanBuilder, num_tokens: int) -> float:
    """Predicted time of so many prompt tokens and the decode rows of the step, uncut."""
    load = builder.load.copy()
    load.add_chunk(num_tokens, 0)
    return builder.model.predict(load)


def beside_online_budget_s(slo: Slo, tbt_share: float) -> float:
    """Bound of a step that offline rows share with online ones.

    The TBT target, as in the papers, or the share of it that keeps gaps in time; but at most half
    the TTFT target: behind a longer step an arrival would have no time left for its own prompt.
    """
    return min(slo.tbt_s * tbt_share, slo.ttft_s / 2.0)


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
    longest_s: float,
    prompt_tokens: int,
    arrivals_per_s: float,
) -> float:
    """Bound for a step without online rows.

    One that cannot be stopped has to end early enough for a typical online prompt that arrives at
    its beginning:

        T <= w,  w = t_TTFT - T(prefill of a typical online prompt)

    A stop throws away what the step has computed, so one that can be stopped is only so long that
    little is lost. With a constant c per step and arrivals at rate a, of which those in the last w'
    of it can wait, a step of length T keeps T - c - a (T - w')^2 / 2, and the most per second at

        T = sqrt(w'^2 + 2 c / a)

    which without w' is Young's interval between checkpoints (CACM 17:9, 1974). w' is half of w: a
    wait costs the arrival something, too. No bound is less than the TBT target, under which nothing
    useful fits.

    Args:
        snapshot: Targets and overhead.
        model: Predicts steps.
        stoppable: Whether a safepoint can stop the step.
        longest_s: The longest step that can be stopped.
        prompt_tokens: Length of a typical online prompt.
        arrivals_per_s: How often one comes; 0 where stops are not to be counted.
    """
    prompt, least = StepLoad(), StepLoad()
    prompt.add_chunk(prompt_tokens, 0)
    room_s = snapshot.slo.ttft_s - model.predict(prompt) - snapshot.overhead_s
    if not stoppable:
        return max(room_s, snapshot.slo.tbt_s)
    if arrivals_per_s <= 0.0:
        return longest_s
    least.add_chunk(1, 0)
    free_s = max(0.0, FREE_SHARE * room_s)
    best_s = math.sqrt(free_s**2 + 2.0 * model.predict(least) / arrivals_per_s)
    return min(longest_s, max(best_s, snapshot.slo.tbt_s))


# --- What offline work beside online requests has to be worth.


# Below this share of time without online requests, that time is too scarce to wait for.
PLENTY = 0.1
# A longer memory of good times would keep offline work from beside online requests for minutes
# after they have come to stay: from here the price begins to fall after half a minute.
MOST = 0.3
PRICE_HORIZON_S = 30.0
LONGEST_STEP_S = 10.0


class HarvestPrice:
    """Least compute saved later per second by which offline rows lengthen an online step.

    A second added to the steps of online requests is a second less without them, in which offline
    work runs at its best. So while there is such time, work beside online requests has to cost no
    more there than alone: the price is 1. Where online requests are always there, waiting for a
    better moment would be waiting for ever, and the price falls to ``least``.

    Args:
        least: The price when online requests are always there.
    """

    def __init__(self, least: float) -> None:
        """Assume that there is time without online requests."""
        self._least = least
        self._alone_share = MOST
        self._last_s: float | None = None
        self._last_online = False
        self._last_offline = False

    def update(self, snapshot: Snapshot, *, has_online: bool) -> None:
        """Count the time since the last snapshot for what was there then.

        Time without offline work is no time: nothing was done better in it, and nothing waited.
        """
        if self._last_s is not None and self._last_offline:
            passed_s = min(LONGEST_STEP_S, max(0.0, snapshot.now_s - self._last_s))
            weight = 1.0 - math.exp(-passed_s / PRICE_HORIZON_S)
            share = self._alone_share + weight * ((not self._last_online) - self._alone_share)
            self._alone_share = min(MOST, share)
        self._last_s = snapshot.now_s
        self._last_online = has_online
        self._last_offline = bool(snapshot.offline_running or snapshot.offline_waiting)

    @property
    def value(self) -> float:
        """The price now, between ``least`` and 1."""
        return self._least + (1.0 - self._least) * min(1.0, self._alone_share / PLENTY)


# --- Keeps the share of late gaps where it should be, whatever makes them late.
#
# A step beside online rows is filled to the TBT target less the margin of predictions. What the
# margin does not know (time between passes, bursts, a neighbour on the host that slows many steps
# in a row) makes gaps late all the same, so the gaps themselves say how much of the target is
# used:
#
#     late     share <- share - PACE (1 - LATE_SHARE)
#     in time  share <- share + PACE LATE_SHARE          up to 1
#
# which rests where one gap in twenty is late (Robbins and Monro's search for a quantile, Annals of
# Mathematical Statistics 22:3, 1951).


LATE_SHARE = 0.05
PACE = 0.04
LEAST = 0.7
# A gap longer than so many targets has an online prompt in it, or a stop; less offline work would
# not have kept it short.
FORESEEN = 2.0


class TbtGuard:
    """Follows the gaps between tokens of online rows.

    Attributes:
        share: Of the TBT target, what a step beside online rows may be filled to.
    """

    def __init__(self) -> None:
        """Start with the whole target."""
        self.share = 1.0

    def observe(self, step: FinishedStep, tbt_s: float) -> None:
        """Take in one finished step; those without offline tokens or an online gap say nothing."""
        gap_s = step.outcome.online_gap_s
        if not 0.0 < gap_s <= FORESEEN * tbt_s or step.outcome.offline_tokens == 0:
            return
        if gap_s > tbt_s:
            self.share = max(LEAST, self.share - PACE * (1.0 - LATE_SHARE))
        else:
            self.share = min(1.0, self.share + PACE * LATE_SHARE)


# --- What offline work would cost alone, against what it adds to a step of online requests.
#
# Compared are the profile's own predictions, see :attr:`LatencyModel.profiled`.


def chunk_worth_s(
    builder: PlanBuilder, row: RequestRow, budget_s: float, keep_pages: int, price: float
) -> float:
    """What the prompt tokens that fit would cost as part of a full chunk.

    A few tokens of a long prompt can cost nearly as much as many: the whole context is read
    again, and decode rows beside them run through the slower executor.

    Returns:
        Seconds saved later; 0 if they are less than ``price`` times those added now.
    """
    predict = builder.model.profiled.predict
    num_tokens = builder.chunk_room(row, budget_s, keep_pages)
    if num_tokens == 0:
        return 0.0
    start = row.start_tokens
    full, beside = StepLoad(), builder.load.copy()
    full.add_chunk(builder.snapshot.limits.max_chunk_tokens, start)
    beside.add_chunk(num_tokens, start)
    saved_s = num_tokens * predict(full) / full.num_tokens
    cost_s = predict(beside) - predict(builder.load)
    return saved_s if saved_s >= price * cost_s else 0.0


def decode_worth_s(builder: PlanBuilder, ready: ReadyRows, budget_s: float, price: float) -> float:
    """What the decode rows that fit would cost in a step with all slots of offline rows decoding.

    Returns:
        Seconds saved later; 0 if they are less than ``price`` times those added now.
    """
    predict, resources = builder.model.profiled.predict, builder.snapshot.resources
    kind = StepKind.MIXED if builder.has_chunks else StepKind.DECODE
    most = max(0, min(len(ready), builder.rows_left))
    bound_s = builder.bounded_s(budget_s, kind)
    taken, beside = rows_that_fit(builder.model, builder.load, ready, most, bound_s)
    if not taken:
        return 0.0
    length = (beside.decode_context - builder.load.decode_context) // taken
    slots = resources.total_slots - resources.reserved_slots
    by_pages = resources.total_pages * resources.page_tokens // length
    num_rows = max(1, len(ready), min(slots, by_pages))
    together = StepLoad(num_rows, num_rows * length, num_rows * length * length)
    cost_s = predict(beside) - predict(builder.load)
    saved_s = taken * predict(together) / together.decode_rows
    return saved_s if saved_s >= price * cost_s else 0.0
