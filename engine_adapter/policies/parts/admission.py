"""Which waiting offline rows a step begins, and which of them hold up those behind.

A row is admitted only if its whole prompt has pages, with some kept back for the growth of the rows
already running and for the next online prompt: admitting more would only retract it again. A row
that does not fit holds up those behind it, or they would take the pages it waits for. It is passed
over only where their waiting would not help it:

- online requests hold so much that it would not fit even with all offline rows gone;
- it cannot share a step with the online decode rows: it has one of its own in turn;
- it begins behind so long a prefix that the step has no time for its tokens;
- nothing offline has moved for many steps, so nothing will end and make room.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from engine_adapter.core.release import Release
from engine_adapter.core.request import Phase, RequestRow, pages_for
from engine_adapter.policies.parts.builder import PlanBuilder
from engine_adapter.policies.parts.ordering import OfflineOrder
from engine_adapter.policies.parts.rows import RowsByRole
from engine_adapter.policies.parts.turns import Turns
from engine_adapter.policies.parts.worth import chunk_worth_s

MAX_PROMPTS_COMPARED = 4
MAX_PARTIAL_BESIDE_ONLINE = 4
# A turn is taken whatever it saves once its row has waited so long.
TURN_DUE_S = 10.0


class Admission:
    """Begins waiting rows while a step has pages, slots and time for them.

    Args:
        builder: The step.
        rows: Slot holders of its snapshot.
        order: Counts admissions.
        turns: Is told who was passed over for not sharing a step.
        keep_tokens: Tokens for which pages are kept back from rows that begin.
        price: Compute a chunk beside online rows must save, per second it adds.
    """

    def __init__(
        self,
        builder: PlanBuilder,
        rows: RowsByRole,
        order: OfflineOrder,
        turns: Turns,
        *,
        keep_tokens: int,
        price: float,
    ) -> None:
        """Reserve what rows that have begun still need."""
        self._builder = builder
        self._rows = rows
        self._order = order
        self._turns = turns
        self._price = price
        self._keep_pages = pages_for(keep_tokens, builder.page_tokens)
        # Prompts and checkpoints already begun have first claim on what is free.
        for row in rows.offline_partial:
            self._keep_pages += pages_for(row.fill_tokens, builder.page_tokens) - row.device_pages
        for row in rows.prefetching:
            self._keep_pages += pages_for(row.host_tokens, builder.page_tokens) - row.device_pages
        self._is_turn = self._one_passed = False
        self._beside_online = self._beside_decode = self._decode_mixes = False
        self._pages_offered, self._tokens_in_reach = 0, -1
        self._costly_from = math.inf

    def open(self, *, is_turn: bool = False) -> None:
        """Begin with the online rows in the step, or left out of it for a turn."""
        builder = self._builder
        self._is_turn, self._one_passed = is_turn, False
        self._beside_online = is_turn or builder.num_online > 0
        self._beside_decode = is_turn or builder.has_decode
        self._decode_mixes = builder.snapshot.limits.can_mix and self._rows.online_decode.can_mix
        self._pages_offered, self._tokens_in_reach = builder.pages_left, -1
        self._costly_from = math.inf

    def may_begin(self) -> bool:
        """Whether there is a slot; beside online rows prompts are finished before others are begun.

        Only a finished prompt becomes a decode row, which fills a step at the lowest price.
        """
        few = len(self._rows.offline_partial) < MAX_PARTIAL_BESIDE_ONLINE
        may = not self._beside_online or few or self._is_turn or self._turns.is_stalled
        return may and self._builder.has_offline_slot

    def admit(self, row: RequestRow, budget_s: float) -> bool:
        """Take a waiting row's prompt tokens; False if nobody after it gets any.

        Behind rows that are passed over this is asked for a thousand of them: cheap answers first.
        """
        builder = self._builder
        if builder.chunk_left <= 0 or builder.rows_left <= 0:
            return False
        if row.rid in builder.taken or (self._one_passed and not row.can_mix):
            return True
        fetched = row.phase is Phase.RETRACTED and row.host_tokens > 0
        num_tokens = row.host_tokens if fetched else row.fill_tokens
        if num_tokens > self._room_tokens():
            return self._is_passed_over(num_tokens)
        if fetched:
            return self.fetch(row)
        if self.is_for_another(row):
            self._one_passed = not row.can_mix
            # Else rows that come right behind it would have each slot that one of them gives up.
            has_slot = self._turns.is_refused or builder.offline_slots_left > 1
            return has_slot and (self._decode_mixes or self._is_turn)
        start = row.cached_tokens  # a waiting row's
        if start >= self._costly_from:
            return True
        if not self.is_worth(row, budget_s):
            self._costly_from = start
            return start > 0
        remaining = row.remaining_tokens
        taken = builder.chunk(row, budget_s, self._keep_for(row))
        if taken:
            self._order.admitted(row)
        return taken == remaining

    def fetch(self, row: RequestRow) -> bool:
        """Begin to bring a retracted row back; False if it does not fit, or may not begin now.

        What is left of it counts as promised: newer rows must not take the pages it waits for.
        """
        builder = self._builder
        if row.host_tokens > self._room_tokens():
            return False
        before = builder.pages_left
        if builder.prefetch(row) == 0:
            return False
        whole = pages_for(row.host_tokens, builder.page_tokens) - row.device_pages
        self._keep_pages += whole - (before - builder.pages_left)
        return True

    def is_for_another(self, row: RequestRow) -> bool:
        """Whether a prompt belongs to another step: its turn, or one with the online rows."""
        shares = self._may_share(row)
        if self._is_turn:
            return shares
        if not shares:
            self._turns.pass_over(self._builder)
        return not shares

    def is_worth(self, row: RequestRow, budget_s: float) -> bool:
        """Beside online rows a chunk must save enough; alone any chunk is work that is due.

        So is a turn for a row that has waited for a while: a short prompt may never save enough.
        """
        if not self._beside_online:
            return True
        waited_s = self._builder.snapshot.now_s - row.arrival_at_s
        return (self._is_turn and waited_s > TURN_DUE_S) or self.worth_s(row, budget_s) > 0.0

    def worth_s(self, row: RequestRow, budget_s: float) -> float:
        """Compute that the row's next chunk saves later, see :mod:`worth`."""
        return chunk_worth_s(self._builder, row, budget_s, self._keep_for(row), self._price)

    def next_prompts(self) -> Iterator[RequestRow]:
        """Rows whose prompt tokens could be taken next, the few that matter."""
        yield from self._rows.offline_partial[:MAX_PROMPTS_COMPARED]
        if not self.may_begin():
            return
        for row in self._order.waiting(self._builder.snapshot):
            if row.phase is Phase.RETRACTED and row.host_tokens > 0:
                continue
            if row.fill_tokens <= self._room_tokens():
                if not self._may_share(row):
                    continue  # it has a turn
                yield row
            elif self._is_passed_over(row.fill_tokens):
                continue
            return

    def _keep_for(self, row: RequestRow) -> int:
        """Pages that are not for this row: none of those kept if it has begun, or is the only one.

        What is kept is kept for rows that have begun.
        """
        return 0 if row.holds_slot or not self._others_exist() else self._keep_pages

    def _room_tokens(self) -> int:
        """Tokens that a waiting row may have at its end of prompt."""
        builder = self._builder
        keep = self._keep_pages if self._others_exist() else 0
        return (builder.pages_left - keep) * builder.page_tokens

    def _others_exist(self) -> bool:
        return self._builder.num_offline > 0 or len(self._rows.offline) > 0

    def _may_share(self, row: RequestRow) -> bool:
        return not self._beside_decode or (self._decode_mixes and row.can_mix)

    def _is_passed_over(self, num_tokens: int) -> bool:
        """Whether so many tokens would not fit even if all offline rows were gone, or none goes."""
        if self._turns.is_stalled:
            return True
        if self._tokens_in_reach < 0:
            release = Release()
            offline_pages = sum(release.add(row) for row in self._rows.offline)
            num_pages = self._pages_offered + offline_pages
            self._tokens_in_reach = num_pages * self._builder.page_tokens
        return num_tokens > self._tokens_in_reach
