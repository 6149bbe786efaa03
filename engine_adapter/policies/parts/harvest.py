"""Gives flex and offline rows what a step has left.

Beside online rows the step is filled up to the TBT target. Without any, it is filled for
throughput. In both cases decode rows come in priority order, and waiting rows begin as
:mod:`~engine_adapter.policies.parts.admission` has it. Kinds of work that cannot share a step take
turns (:mod:`~engine_adapter.policies.parts.turns`).
"""

from __future__ import annotations

from engine_adapter.core.request import RequestClass, RequestRow, pages_for
from engine_adapter.latency.load import StepLoad
from engine_adapter.policies.parts.admission import Admission
from engine_adapter.policies.parts.budget import offline_only_budget_s
from engine_adapter.policies.parts.builder import UNBOUNDED_S, PlanBuilder
from engine_adapter.policies.parts.decode_room import with_rows
from engine_adapter.policies.parts.ordering import OfflineOrder, flex_room, retracted_rows
from engine_adapter.policies.parts.rows import RowsByRole
from engine_adapter.policies.parts.turns import Turns
from engine_adapter.policies.parts.victims import VictimPool
from engine_adapter.policies.parts.worth import decode_worth_s
from engine_adapter.policies.settings import PolicySettings

# Rows further down the order may be cheaper and still fit; looking at all of them costs time.
MAX_TOO_SLOW = 8


class Harvester:
    """Fills one step with offline work."""

    def __init__(  # noqa: PLR0913
        self,
        builder: PlanBuilder,
        rows: RowsByRole,
        victims: VictimPool,
        order: OfflineOrder,
        turns: Turns,
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
        self._turns = turns
        self._settings = settings
        self._typical = typical_online_tokens
        self._arrivals_per_s = arrivals_per_s
        self._price = price
        self._admission = Admission(
            builder,
            rows,
            order,
            turns,
            keep_tokens=typical_online_tokens + settings.growth_tokens * (len(rows.offline) + 1),
            price=price,
        )

    def fill_beside_online(self, budget_s: float) -> None:
        """Algorithm 1, line 2 of v2: offline rows up to the TBT target, if they are worth it."""
        self._admission.open()
        chunks_first = not self._turns.decode_owed and self._chunks_harvest_more(budget_s)
        if chunks_first:
            self._take_chunks(budget_s)
        self._take_decode(budget_s, if_worth=True)
        if not chunks_first:
            self._take_chunks(budget_s)
        self._turns.close(self._builder, self._rows)

    def fill_in_order(self, budget_s: float) -> None:
        """Decode rows, then prompt tokens, up to the bound."""
        self._admission.open()
        self._take_decode(budget_s)
        self._take_chunks(budget_s)
        self._turns.close(self._builder, self._rows)

    def fill_turn(self, tbt_s: float) -> bool:
        """A step of their own for prompts that cannot share one with the online decode rows.

        Args:
            tbt_s: Bound of the gap that the online rows have; their decode step is part of it.

        Returns:
            Whether they have one. If not, the online rows may be taken as if nothing was asked.
        """
        builder, online = self._builder, self._rows.online_decode
        num_pages = online.pages.total
        if not self._turns.prompts_owed or builder.pages_left < num_pages:
            return False
        decode_s = builder.model.predict(with_rows(StepLoad(), online, len(online)))
        builder.pages_left -= num_pages  # for the step after this one
        self._admission.open(is_turn=True)
        self._take_chunks(tbt_s - decode_s - builder.snapshot.overhead_s)
        self._turns.is_refused = not builder.has_chunks
        if not builder.has_chunks:
            builder.pages_left += num_pages
            return False
        self._turns.close(builder, self._rows)
        return True

    def fill_alone(self) -> float:
        """Offline batching mode; returns the bound used.

        Prompt tokens and decode rows share the step if one step is predicted to be no slower
        than two. Otherwise prompts go first, since more decode rows share each later decode step,
        and the two take turns: prompts that end without decoding would come first for ever.
        """
        builder, limits = self._builder, self._builder.snapshot.limits
        armed = self._settings.safepoints
        prefill_s = self._bound_s(armed and limits.prefill_safepoints)
        decode_s = self._bound_s(armed and limits.decode_safepoints)
        self._admission.open()
        if not self._turns.decode_owed:
            self._take_chunks(prefill_s)
        if builder.has_chunks:
            budget_s = prefill_s
            if self._sharing_pays():
                budget_s = min(prefill_s, decode_s)
                self._take_decode(budget_s)
        else:
            budget_s = decode_s
            self._take_decode(decode_s, at_least_one=True)
            if builder.is_empty:
                self._unblock(prefill_s)
            if builder.is_empty:
                self._take_least()
        self._turns.close(builder, self._rows)
        return budget_s

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
            if not self._admission.fetch(row):
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

    def _take_chunks(self, budget_s: float) -> None:  # noqa: C901
        builder, admission = self._builder, self._admission
        for row in self._rows.offline_partial:
            if builder.chunk_left <= 0 or builder.rows_left <= 0:
                return
            if row.rid in builder.taken:
                continue
            if admission.is_for_another(row) or not admission.is_worth(row, budget_s):
                continue
            if builder.chunk(row, budget_s) < row.remaining_tokens:
                return
        # Pages one step freed for online rows are not given away in the same step.
        if builder.makes_room or not admission.may_begin():
            return
        room = flex_room(builder.snapshot, self._settings.flex_max_share)
        beyond_share: list[RequestRow] = []
        for row in self._order.waiting(builder.snapshot):
            if row.request_class == RequestClass.FLEX:
                if room <= 0:
                    beyond_share.append(row)
                    continue
                room -= 1
            if not admission.admit(row, budget_s):
                return
        # No offline row wants the rest: flex may have it.
        for row in beyond_share:
            if not admission.admit(row, budget_s):
                return

    def _chunks_harvest_more(self, budget_s: float) -> bool:
        """Compare the two fillings by the compute they would save later."""
        if self._builder.has_chunks:
            return False
        for row in self._admission.next_prompts():
            saved_s = self._admission.worth_s(row, budget_s)
            if saved_s > 0.0:
                ready = self._builder.untaken(self._rows.offline_decode)
                return saved_s > decode_worth_s(self._builder, ready, budget_s, self._price)
        return False

    def _sharing_pays(self) -> bool:
        """Whether one mixed step is predicted to be no slower than a prefill and a decode step."""
        builder, predict = self._builder, self._builder.model.profiled.predict
        if not self._rows.offline_decode or not builder.snapshot.limits.can_mix:
            return False
        ready = builder.untaken(self._rows.offline_decode)
        decode = with_rows(StepLoad(), ready, len(ready))
        mixed = with_rows(builder.load, ready, len(ready))
        return predict(mixed) <= predict(builder.load) + predict(decode)
