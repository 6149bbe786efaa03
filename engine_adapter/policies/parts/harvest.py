"""Gives flex and offline rows what a step has left.

Beside online rows the step is filled up to the TBT target. Without any, it is filled for
throughput. In both cases decode rows come in priority order, and a row is admitted only if its
whole prompt has pages, with some kept back for the growth of the rows already running and for the
next online prompt: admitting more would only retract it again.
"""

from __future__ import annotations

from collections.abc import Iterator

from engine_adapter.core.request import Phase, RequestClass, RequestRow, pages_for
from engine_adapter.latency.load import StepLoad
from engine_adapter.policies.parts.budget import offline_only_budget_s
from engine_adapter.policies.parts.builder import UNBOUNDED_S, PlanBuilder
from engine_adapter.policies.parts.decode_room import with_rows
from engine_adapter.policies.parts.ordering import OfflineOrder, flex_room, retracted_rows
from engine_adapter.policies.parts.rows import RowsByRole
from engine_adapter.policies.parts.victims import VictimPool
from engine_adapter.policies.parts.worth import chunk_worth_s, decode_worth_s
from engine_adapter.policies.settings import PolicySettings

# Rows further down the order may be cheaper and still fit; looking at all of them costs time.
MAX_TOO_SLOW = 8
MAX_PROMPTS_COMPARED = 4
MAX_PARTIAL_BESIDE_ONLINE = 4


class Harvester:
    """Fills one step with offline work."""

    def __init__(
        self,
        builder: PlanBuilder,
        rows: RowsByRole,
        victims: VictimPool,
        order: OfflineOrder,
        settings: PolicySettings,
        typical_online_tokens: int,
        price: float = 0.0,
        arrivals_per_s: float = 0.0,
    ) -> None:
        """Bind the step under construction, the rows it may use and the price of its time.

        With ``arrivals_per_s`` steps without online rows are only so long that stops waste little.
        """
        self._builder = builder
        self._rows = rows
        self._victims = victims
        self._order = order
        self._settings = settings
        self._typical = typical_online_tokens
        self._arrivals_per_s = arrivals_per_s
        self._price = price
        growing = len(rows.offline) + 1
        self._keep_pages = pages_for(
            typical_online_tokens + settings.growth_tokens * growing, builder.page_tokens
        )
        # Prompts and checkpoints already begun have first claim on what is free.
        for row in rows.offline_partial:
            self._keep_pages += pages_for(row.fill_tokens, builder.page_tokens) - row.device_pages
        for row in rows.prefetching:
            self._keep_pages += pages_for(row.host_tokens, builder.page_tokens) - row.device_pages

    def fill_beside_online(self, budget_s: float) -> None:
        """Algorithm 1, line 2 of v2: offline rows up to the TBT target, if they are worth it."""
        chunks_first = self._chunks_harvest_more(budget_s)
        if chunks_first:
            self._take_chunks(budget_s)
        self._take_decode(budget_s, if_worth=True)
        if not chunks_first:
            self._take_chunks(budget_s)

    def fill_in_order(self, budget_s: float) -> None:
        """Decode rows, then prompt tokens, up to the bound."""
        self._take_decode(budget_s)
        self._take_chunks(budget_s)

    def fill_alone(self) -> float:
        """Offline batching mode; returns the bound used.

        Prompt tokens and decode rows share the step if one step is predicted to be no slower
        than two. Otherwise prompts go first: more decode rows share each later decode step.
        """
        builder, limits = self._builder, self._builder.snapshot.limits
        armed = self._settings.safepoints
        prefill_s = self._bound_s(armed and limits.prefill_safepoints)
        decode_s = self._bound_s(armed and limits.decode_safepoints)
        both_s = min(prefill_s, decode_s)
        self._take_chunks(prefill_s)
        if not builder.has_chunks:
            self._take_decode(decode_s, at_least_one=True)
            if builder.is_empty:
                self._unblock(prefill_s)
            if builder.is_empty:
                self._take_least()
            return decode_s
        if self._sharing_pays():
            self._take_decode(both_s)
            return both_s
        return prefill_s

    def order_prefetches(self) -> None:
        """Bring retracted rows back while pages, slots and interconnect allow it."""
        builder = self._builder
        for row in self._rows.prefetching:
            if row.rid in builder.taken or builder.prefetch(row):
                continue
            if builder.is_empty and self._victims.make_room(row, builder.pages_left + 1):
                builder.prefetch(row)
        if builder.makes_room or not builder.has_offline_slot:
            return
        for row in retracted_rows(builder.snapshot.offline_waiting):
            if row.host_tokens == 0 or row.rid in builder.taken:
                continue
            if not self._fetch(row):
                return

    def _bound_s(self, stoppable: bool) -> float:
        snapshot = self._builder.snapshot
        return offline_only_budget_s(
            snapshot,
            self._builder.model,
            stoppable=stoppable,
            longest_s=self._settings.offline_step_factor * snapshot.slo.ttft_s,
            prompt_tokens=self._typical,
            arrivals_per_s=self._arrivals_per_s,
        )

    def _take_decode(
        self, budget_s: float, *, at_least_one: bool = False, if_worth: bool = False
    ) -> None:
        builder = self._builder
        too_slow = 0
        ready = builder.untaken(self._rows.offline_decode)
        if if_worth and decode_worth_s(builder, ready, budget_s, self._price) <= 0.0:
            return
        for row in ready.rows[builder.decode_run(ready, budget_s) :]:
            if builder.rows_left <= 0 or too_slow >= MAX_TOO_SLOW:
                return
            if row.rid in builder.taken:
                continue
            bound_s = UNBOUNDED_S if at_least_one and builder.is_empty else budget_s
            if builder.decode(row, bound_s):
                continue
            pages = builder.decode_pages(row)
            if pages <= builder.pages_left:
                too_slow += 1
            elif not self._victims.make_room(row, pages) or not builder.decode(row, bound_s):
                # Out of pages, and no less important row has any to give.
                return

    def _unblock(self, budget_s: float) -> None:
        """Half-filled prompts hold all pages: the most important one displaces the others."""
        builder = self._builder
        for row in self._rows.offline_partial:
            if row.rid in builder.taken:
                continue
            tokens = min(row.remaining_tokens, builder.chunk_left)
            whole = pages_for(row.start_tokens + tokens, builder.page_tokens)
            if self._victims.make_room(row, whole - row.device_pages):
                builder.chunk(row, budget_s)
                return

    def _take_least(self) -> None:
        """No prompt token fits the bound: one host page of tokens all the same.

        A target that nothing can meet must not keep a batch waiting for ever, and an online
        request that arrives waits for as little as can be.
        """
        builder = self._builder
        least = max(builder.page_tokens, builder.snapshot.resources.host_page_tokens)
        builder.chunk_left = min(builder.chunk_left, least)
        self._take_chunks(UNBOUNDED_S)

    def _take_chunks(self, budget_s: float) -> None:
        builder = self._builder
        for row in self._rows.offline_partial:
            if builder.chunk_left <= 0 or builder.rows_left <= 0:
                return
            if row.rid in builder.taken:
                continue
            if not self._worth_it(row, budget_s):
                continue
            if builder.chunk(row, budget_s) < row.remaining_tokens:
                return
        # Pages one step freed for online rows are not given away in the same step.
        if builder.makes_room or not self._may_begin_prompts():
            return
        room = flex_room(builder.snapshot, self._settings.flex_max_share)
        beyond_share: list[RequestRow] = []
        for row in self._order.waiting(builder.snapshot):
            if row.request_class == RequestClass.FLEX:
                if room <= 0:
                    beyond_share.append(row)
                    continue
                room -= 1
            if not self._admit(row, budget_s):
                return
        # No offline row wants the rest: flex may have it.
        for row in beyond_share:
            if not self._admit(row, budget_s):
                return

    def _may_begin_prompts(self) -> bool:
        """Whether there is a slot; beside online rows prompts are finished before others are begun.

        Only a finished prompt becomes a decode row, which fills a step at the lowest price.
        """
        beside_online = self._builder.num_online > 0
        may = not beside_online or len(self._rows.offline_partial) < MAX_PARTIAL_BESIDE_ONLINE
        return may and self._builder.has_offline_slot

    def _admit(self, row: RequestRow, budget_s: float) -> bool:
        """Take a waiting row's prompt tokens; False if nobody after it gets any."""
        builder = self._builder
        if builder.chunk_left <= 0 or builder.rows_left <= 0:
            return False
        if row.rid in builder.taken:
            return True
        if row.phase is Phase.RETRACTED and row.host_tokens > 0:
            return self._fetch(row)
        if not self._fits_whole(row, row.fill_tokens) or not self._worth_it(row, budget_s):
            return False
        remaining = row.remaining_tokens
        taken = builder.chunk(row, budget_s, self._keep_pages if self._others_exist() else 0)
        if taken:
            self._order.admitted(row)
        return taken == remaining

    def _fetch(self, row: RequestRow) -> bool:
        """Begin to bring a retracted row back; False if it does not fit, or may not begin now.

        What is left of it counts as promised: newer rows must not take the pages it waits for.
        """
        builder = self._builder
        if not self._fits_whole(row, row.host_tokens):
            return False
        before = builder.pages_left
        if builder.prefetch(row) == 0:
            return False
        whole = pages_for(row.host_tokens, builder.page_tokens) - row.device_pages
        self._keep_pages += whole - (before - builder.pages_left)
        return True

    def _worth_it(self, row: RequestRow, budget_s: float) -> bool:
        """Beside online rows a chunk must save enough; alone any chunk is work that is due."""
        return self._builder.num_online == 0 or self._chunk_worth_s(row, budget_s) > 0.0

    def _fits_whole(self, row: RequestRow, num_tokens: int) -> bool:
        """Whether the row fits to its end of prompt, or is the only offline row there is."""
        builder = self._builder
        pages = pages_for(num_tokens, builder.page_tokens)
        keep = self._keep_pages if self._others_exist() else 0
        return builder.pages_left - keep >= pages

    def _others_exist(self) -> bool:
        return bool(self._rows.offline or self._builder.num_offline)

    def _next_prompts(self) -> Iterator[RequestRow]:
        """Rows whose prompt tokens could be taken next, the few that matter."""
        yield from self._rows.offline_partial[:MAX_PROMPTS_COMPARED]
        if not self._may_begin_prompts():
            return
        for row in self._order.waiting(self._builder.snapshot):
            if row.phase is Phase.RETRACTED and row.host_tokens > 0:
                continue
            if self._fits_whole(row, row.fill_tokens):
                yield row
            return

    def _chunks_harvest_more(self, budget_s: float) -> bool:
        """Compare the two fillings by the compute they would save later."""
        if self._builder.has_chunks:
            return False
        for row in self._next_prompts():
            saved_s = self._chunk_worth_s(row, budget_s)
            if saved_s > 0.0:
                ready = self._builder.untaken(self._rows.offline_decode)
                return saved_s > decode_worth_s(self._builder, ready, budget_s, self._price)
        return False

    def _chunk_worth_s(self, row: RequestRow, budget_s: float) -> float:
        return chunk_worth_s(self._builder, row, budget_s, self._keep_pages, self._price)

    def _sharing_pays(self) -> bool:
        """Whether one mixed step is predicted to be no slower than a prefill and a decode step."""
        builder, predict = self._builder, self._builder.model.profiled.predict
        if not self._rows.offline_decode or not builder.snapshot.limits.can_mix:
            return False
        ready = builder.untaken(self._rows.offline_decode)
        decode = with_rows(StepLoad(), ready, len(ready))
        mixed = with_rows(builder.load, ready, len(ready))
        return predict(mixed) <= predict(builder.load) + predict(decode)
