"""Gives online requests their tokens, reclaiming from offline requests what they lack.

Decoding requests first, all of them, then prompts from the oldest on. Where the executor cannot mix
the two, or one mixed step is predicted to be slower than one of each, steps alternate, so that
neither starves the other. Prompts may wait for a step of their own where sharing one would cost
those in it more than it saves the others: a step of two prompts ends for both when both are done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from engine_adapter.scheduling.builder import UNBOUNDED_S, PlanBuilder, with_rows
from engine_adapter.scheduling.latency import StepLoad
from engine_adapter.scheduling.memory import VictimPool
from engine_adapter.scheduling.queue import RowsByRole
from engine_adapter.scheduling.request import Phase, RequestRow, pages_for
from engine_adapter.scheduling.snapshot import ReadyRows

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
    """

    def __init__(self, prompt_budget: PromptBudget, *, fetches: bool = False) -> None:
        """Start with a step of either kind."""
        self._fetches = fetches
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
        all_decode = len(rows.online_decode) == len(rows.online)
        return all_decode and not rows.online_waiting and self._gap_s == 0.0

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
            if builder.chunk_left <= 0 or builder.chunk(row, budget_s) == 0:
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
            num_slots += 0 if row.holds_slot else 1
            if row.rid in builder.taken or not victims.make_room(row, num_pages, num_slots):
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
    return with_rows(StepLoad(), ready, len(ready))
