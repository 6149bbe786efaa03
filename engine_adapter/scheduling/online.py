"""Gives online requests their tokens, reclaiming from offline requests what they lack.

Decoding requests first, all of them, then prompts from the oldest on. Where the executor cannot mix
the two, or one mixed step is predicted to be slower than one of each, steps alternate, so that
neither starves the other. Prompts may wait for a step of their own where sharing one would cost
those in it more than it saves the others: a step of two prompts ends for both when both are done.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from engine_adapter.scheduling.builder import UNBOUNDED_S, PlanBuilder, with_rows
from engine_adapter.scheduling.latency import StepLoad
from engine_adapter.scheduling.memory import VictimPool
from engine_adapter.scheduling.queue import RowsByRole
from engine_adapter.scheduling.request import Phase, RequestRow, pages_for
from engine_adapter.scheduling.snapshot import ReadyRows, Snapshot
from engine_adapter.scheduling.targets import Slo

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


# --- Which promise is kept less well of late: first tokens in time, or gaps.

KEPT_OF_FIRST_TOKENS = 0.99
KEPT_OF_STEPS = 0.999
"""What one event leaves of those before it: a minute of either, on a GPU that serves chat."""


class LateShare:
    """The share of late ones, old ones counting less and less.

    Args:
        kept: Weight that is left of what was counted, each time something is added.
    """

    def __init__(self, kept: float) -> None:
        """Nothing was late yet."""
        self._kept = kept
        self._late = self._all = 0.0

    def add(self, num: int, *, late: bool) -> None:
        """Count so many at once."""
        self._late = self._late * self._kept + (num if late else 0)
        self._all = self._all * self._kept + num

    @property
    def share(self) -> float:
        """Late ones of all; 0 before the first."""
        return self._late / self._all if self._all else 0.0


class Promises:
    """How the two promises to online requests were kept: read off the snapshots as they come."""

    def __init__(self) -> None:
        """Start with both kept."""
        self.first_tokens = LateShare(KEPT_OF_FIRST_TOKENS)
        self.gaps = LateShare(KEPT_OF_STEPS)
        self._seen_at_s = self._decoded_at_s = -math.inf
        self._had_rows, self._num_decoding = False, 0

    def update(self, snapshot: Snapshot, rows: Sequence[RequestRow]) -> None:
        """Take in what the last step did.

        Args:
            snapshot: Now.
            rows: Online requests that decode.
        """
        now_s, slo = snapshot.now_s, snapshot.slo
        if self._num_decoding:
            late = now_s - self._decoded_at_s > slo.tbt_s
            self.gaps.add(self._num_decoding, late=late)
        if self._num_decoding or not self._had_rows:
            self._decoded_at_s = now_s
        for row in rows:
            if row.first_token_at_s > self._seen_at_s:
                late = row.first_token_at_s - row.arrival_at_s > slo.ttft_s
                self.first_tokens.add(1, late=late)
        self._seen_at_s, self._had_rows, self._num_decoding = now_s, bool(rows), 0

    def planned(self, num_decoding: int) -> None:
        """The step to come has a token for so many online requests that decode."""
        self._num_decoding = num_decoding

    def prompt_budget_s(
        self, builder: PlanBuilder, rows: list[RequestRow], decode_s: float
    ) -> float:
        """The gap cap; lifted for a late prompt while first tokens are kept less well than gaps."""
        if self.first_tokens_suffer(builder.snapshot.slo):
            return online_prefill_budget_s(builder, rows, decode_s)
        return cut_budget_s(builder, rows, decode_s)

    def first_tokens_suffer(self, slo: Slo) -> bool:
        """Whether first tokens are later than gaps, each beside what its percentile allows."""
        allowed = (1.0 - slo.ttft_share) / (1.0 - slo.tbt_share)
        return self.first_tokens.share > allowed * self.gaps.share


# --- How long a step may take, for the next tokens of online requests.

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
            slack_s = min(slack_s, builder.budget_of(due_s, builder.pace_quantile))
    return max(slack_s, min(slo.tpot_s, slo.tbt_s))


def first_token_slack_s(
    builder: PlanBuilder, rows: Sequence[RequestRow], share: float = 1.0
) -> float:
    """How long a step may last for the first tokens that wait for it; infinite if none does.

    A prompt that the step finishes has its token at the step's end. What is left of the others is
    computed after it, oldest first, in at least one step more:

        T <= arrival + share t_TTFT - now - T(what is left up to this prompt)

    Args:
        builder: The step, with its online requests taken.
        rows: Online requests that had prompt tokens left before it, oldest first.
        share: Of the target, what they may take (:class:`.PolicySettings`).
    """
    snapshot = builder.snapshot
    slack_s = math.inf
    left = StepLoad()
    ttft_s = share * snapshot.slo.ttft_s
    for row in rows[:MAX_PROMPTS_WAITING]:
        due_s = row.arrival_at_s + ttft_s - snapshot.now_s
        num_taken = builder.chunk_tokens_of(row)
        if num_taken < row.remaining_tokens:
            left.add_chunk(row.remaining_tokens - num_taken, row.start_tokens + num_taken)
            due_s -= builder.model.predict(left) + snapshot.overhead_s
        slack_s = min(slack_s, due_s)
    return builder.budget_of(slack_s, builder.first_quantile)


# --- Steps bounded by a count of tokens instead of a time: what the baselines do.


def take_all_decode(builder: PlanBuilder, rows: ReadyRows, victims: VictimPool) -> None:
    """Take every decoding request; out of pages, the least important rows make room."""
    ready = builder.untaken(rows)
    for row in ready.rows[builder.decode_run(ready, UNBOUNDED_S) :]:
        if row.rid in builder.taken or builder.decode(row, UNBOUNDED_S):
            continue
        if victims.make_room(row, builder.decode_pages(row)):
            builder.decode(row, UNBOUNDED_S)


def take_prompts(builder: PlanBuilder, rows: Iterable[RequestRow], keep_pages: int) -> None:
    """Take prompt tokens row after row until the executor's chunk or the pages are used up.

    A row without a slot is admitted only if its whole prompt has pages beside ``keep_pages``.
    """
    for row in rows:
        if builder.chunk_left <= 0:
            return
        if row.rid in builder.taken:
            continue
        keep = 0
        if not row.holds_slot:
            keep = keep_pages if builder.snapshot.running or not builder.is_empty else 0
            if pages_for(row.fill_tokens, builder.page_tokens) > builder.pages_left - keep:
                return
        taken = builder.chunk(row, UNBOUNDED_S, keep)
        if taken == 0 and builder.has_decode and not row.can_mix:
            continue  # it waits for a step without decoding requests, those behind it need not
        if taken < row.remaining_tokens:
            return


def unblock(builder: PlanBuilder, rows: Iterable[RequestRow], victims: VictimPool) -> None:
    """Half-filled prompts hold every page and nothing runs: the first displaces the others."""
    if not builder.is_empty:
        return
    for row in rows:
        if row.phase is not Phase.PREFILL or row.rid in builder.taken:
            continue
        tokens = row.start_tokens + min(row.remaining_tokens, builder.chunk_left)
        pages = pages_for(tokens, builder.page_tokens) - row.device_pages
        if victims.make_room(row, pages) and builder.chunk(row, UNBOUNDED_S):
            return


PromptBudget = Callable[[PlanBuilder, list[RequestRow], float], float]


class OnlineFiller:
    """Takes online requests into a step.

    Args:
        prompt_budget: Bound of a step with online prompts, given the builder with its decoding
            requests taken, the prompts, oldest first, and the time of a decode step to come.
        fetches: The policy fetches rows whose KV is on the host; others compute them again.
        growth_tokens: Output tokens for which pages are kept back, for each online request that
            holds a slot, when another begins: without, those that answer take pages from each
            other again and again.
    """

    def __init__(
        self, prompt_budget: PromptBudget, *, fetches: bool = False, growth_tokens: int = 0
    ) -> None:
        """Start with a step of either kind."""
        self._fetches = fetches
        self._growth_tokens, self._keep_pages = growth_tokens, 0
        self._prompt_budget = prompt_budget
        self._prefilled_alone = False
        self._gap_s = 0.0

    def take(self, builder: PlanBuilder, rows: RowsByRole, victims: VictimPool) -> float:
        """Fill the step; nothing offline may have been taken before.

        Returns:
            Seconds of the decoding requests' current gap that belong to another step: the prompts'
            step before this one, or the decode step after this one. They are not to be harvested.
        """
        filling = rows.online_filling(fetches=self._fetches)
        self._keep_pages = self._growth_tokens * len(rows.online) // builder.page_tokens
        if filling and rows.online_decode and self._must_separate(builder, rows, filling):
            self._prefilled_alone = not self._prefilled_alone
            if self._prefilled_alone:
                decode_s = builder.model.predict(_decode_load(rows.online_decode))
                self._take_prompts(builder, filling, victims, decode_s)
                return decode_s
            filling = []
        else:
            self._prefilled_alone = False
        gap_s, self._gap_s = self._gap_s, 0.0
        take_all_decode(builder, rows.online_decode, victims)
        if filling:
            self._take_prompts(builder, filling, victims, 0.0)
        victims.foresee(rows.online_decode.rows)
        return gap_s

    def may_leave_out(self, rows: RowsByRole) -> bool:
        """Whether the next step may be one of offline prompts alone.

        The online requests all decode, and no other step is part of their gap.
        """
        all_decode = len(rows.online_decode.rows) == len(rows.online)
        return all_decode and not rows.online_waiting and self._gap_s == 0.0

    @property
    def decode_waits(self) -> bool:
        """Whether the step has prompts alone, and the decoding requests wait for the next one."""
        return self._prefilled_alone

    def leave_out(self) -> None:
        """The step is one of offline prompts: it counts towards the gap of the online requests."""
        self._prefilled_alone = True

    def close(self, predicted_s: float) -> None:
        """Note how long the finished step will take."""
        self._gap_s = predicted_s if self._prefilled_alone else 0.0

    def _take_prompts(
        self,
        builder: PlanBuilder,
        filling: list[RequestRow],
        victims: VictimPool,
        decode_s: float,
    ) -> None:
        self._make_room(builder, filling, victims)
        budget_s = self._prompt_budget(builder, filling, decode_s)
        for row in filling:
            if row.rid in builder.taken:
                continue
            keep = 0 if row.holds_slot else self._keep_pages
            if builder.chunk_left <= 0 or builder.chunk(row, budget_s, keep) == 0:
                break

    def _make_room(
        self, builder: PlanBuilder, filling: list[RequestRow], victims: VictimPool
    ) -> None:
        """Ask for the pages and slots of as many prompts as one step can hold."""
        tokens_left = builder.chunk_left
        num_pages = num_slots = 0
        for row in filling:
            if tokens_left <= 0:
                break
            tokens = min(row.remaining_tokens, tokens_left)
            tokens_left -= tokens
            num_pages += max(
                0, pages_for(row.start_tokens + tokens, builder.page_tokens) - row.device_pages
            )
            keep = 0
            if not row.holds_slot:
                num_slots += 1
                keep = self._keep_pages
            if row.rid in builder.taken or not victims.make_room(row, num_pages + keep, num_slots):
                break

    def _must_separate(
        self, builder: PlanBuilder, rows: RowsByRole, filling: list[RequestRow]
    ) -> bool:
        """Whether the oldest prompt and the decoding requests cannot or should not share a step."""
        oldest = filling[0]
        if not builder.snapshot.limits.can_mix or not oldest.can_mix:
            return True
        if not rows.online_decode.can_mix:
            return True
        decode = _decode_load(rows.online_decode)
        prompt, mixed = StepLoad(), decode.copy()
        num_tokens = min(oldest.remaining_tokens, builder.chunk_left)
        prompt.add_chunk(num_tokens, oldest.start_tokens)
        mixed.add_chunk(num_tokens, oldest.start_tokens)
        predict = builder.model.predict
        return predict(mixed) > predict(decode) + predict(prompt)


def _decode_load(ready: ReadyRows) -> StepLoad:
    return with_rows(StepLoad(), ready, len(ready.rows))
