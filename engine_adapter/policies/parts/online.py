"""Gives online rows their tokens, reclaiming from offline rows what they lack.

Decode rows first, all of them, then prompts from the oldest on. Where the executor cannot mix the
two, steps alternate, so that neither starves the other.
"""

from __future__ import annotations

from collections.abc import Callable

from engine_adapter.core.request import RequestRow, pages_for
from engine_adapter.policies.parts.builder import UNBOUNDED_S, PlanBuilder
from engine_adapter.policies.parts.rows import RowsByRole
from engine_adapter.policies.parts.victims import VictimPool

PromptBudget = Callable[[PlanBuilder, list[RequestRow]], float]


class OnlineFiller:
    """Takes online rows into a step.

    Args:
        prompt_budget: Bound of a step with online prompts, given the builder with its decode
            rows taken and the prompts, oldest first.
    """

    def __init__(self, prompt_budget: PromptBudget) -> None:
        """Start with a step of either kind."""
        self._prompt_budget = prompt_budget
        self._prefilled_alone = False

    def take(self, builder: PlanBuilder, rows: RowsByRole, victims: VictimPool) -> None:
        """Fill the step; nothing offline may have been taken before."""
        filling = rows.online_filling()
        if filling and rows.online_decode and self._must_separate(builder, rows, filling):
            self._prefilled_alone = not self._prefilled_alone
            if self._prefilled_alone:
                self._take_prompts(builder, filling, victims)
                return
            filling = []
        else:
            self._prefilled_alone = False
        for row in rows.online_decode:
            if row.rid in builder.taken or builder.decode(row, UNBOUNDED_S):
                continue
            if victims.make_room(row, builder.decode_pages(row)):
                builder.decode(row, UNBOUNDED_S)
        if filling:
            self._take_prompts(builder, filling, victims)

    def _take_prompts(
        self, builder: PlanBuilder, filling: list[RequestRow], victims: VictimPool
    ) -> None:
        self._make_room(builder, filling, victims)
        budget_s = self._prompt_budget(builder, filling)
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
        """Whether the oldest prompt and the decode rows cannot share a step."""
        if not builder.snapshot.limits.can_mix or not filling[0].can_mix:
            return True
        return not all(row.can_mix for row in rows.online_decode)
