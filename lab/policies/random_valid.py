"""Test only: plans that are valid and otherwise senseless.

Drives an engine through combinations no sensible policy would choose: rows parked and resumed at
any moment, prompts cut anywhere, retracts without need, copies of any size. The numbers come from
a linear congruential generator, so that a run can be repeated.
"""

from __future__ import annotations

from engine_adapter.scheduling.builder import UNARMED, UNBOUNDED_S, PlanBuilder
from engine_adapter.scheduling.latency import LatencyModel
from engine_adapter.scheduling.memory import VictimPool, uncopied_pages
from engine_adapter.scheduling.online import unblock
from engine_adapter.scheduling.plan import (
    Arrival,
    Decision,
    RunningStep,
    SafepointMode,
    Safepoints,
    StepPlan,
)
from engine_adapter.scheduling.policies.base import PolicyBase
from engine_adapter.scheduling.policies.settings import PolicySettings
from engine_adapter.scheduling.queue import RowsByRole
from engine_adapter.scheduling.request import Phase, RequestRow
from engine_adapter.scheduling.snapshot import Snapshot


class RandomValid(PolicyBase):
    """Throws a coin for every row."""

    name = "random_valid"

    def __init__(
        self, model: LatencyModel, settings: PolicySettings | None = None, seed: int = 1
    ) -> None:
        """Start the generator at ``seed``."""
        super().__init__(model, settings)
        self._state = seed

    def plan(self, snapshot: Snapshot) -> StepPlan:
        """Any subset of the rows, in any amounts that fit."""
        builder = self._builder(snapshot)
        rows = RowsByRole.of(snapshot)
        victims = VictimPool(builder, rows.offline, rows.online)
        for row in rows.offline:
            if not row.in_flight and not row.host_pages_pending and self._chance(20):
                builder.retract(row)
        order = rows.online_decode.rows + rows.offline_decode.rows
        filling = rows.online_partial + rows.offline_partial
        if self._chance(2):
            self._take_prompts(builder, snapshot, filling)
        for row in order:
            if row.rid not in builder.taken and not self._chance(3):
                builder.decode(row, UNBOUNDED_S)
        if not builder.has_chunks and self._chance(2):
            self._take_prompts(builder, snapshot, filling)
        if builder.is_empty:
            self._take_anything(builder, rows, snapshot, victims)
        self._fetch(builder, rows, snapshot)
        for row in rows.offline + rows.online:
            if row.rid not in builder.retracted and row.phase is not Phase.PREFETCHING:
                pages = uncopied_pages(row, snapshot.resources.host_page_tokens)
                builder.checkpoint([(row, min(pages, 1 + self._next() % 4))])
        return builder.build(UNBOUNDED_S, self._safepoints(builder))

    def at_arrival(self, arrival: Arrival, step: RunningStep) -> Decision:
        """Stop whenever the step can be stopped; no state, other threads call this."""
        if step.safepoints.mode is SafepointMode.NONE:
            return Decision.CONTINUE
        return Decision.STOP_AT_NEXT_SAFEPOINT

    def _take_prompts(
        self, builder: PlanBuilder, snapshot: Snapshot, filling: list[RequestRow]
    ) -> None:
        # Now and then a row is computed anew although the host has its KV.
        waiting = [r for r in snapshot.online_waiting if r.host_tokens == 0 or self._chance(8)]
        offline = [r for r in snapshot.offline_waiting if r.host_tokens == 0 or self._chance(8)]
        waiting += offline[:4]
        full = builder.chunk_left
        for row in filling + waiting:
            if row.rid in builder.taken or self._chance(4):
                continue
            left = builder.chunk_left
            builder.chunk_left = min(left, builder.page_tokens + self._next() % max(1, full))
            taken = builder.chunk(row, UNBOUNDED_S)
            builder.chunk_left = left - taken

    def _take_anything(
        self,
        builder: PlanBuilder,
        rows: RowsByRole,
        snapshot: Snapshot,
        victims: VictimPool,
    ) -> None:
        """The coins left the step empty: take the first row that fits, so that work goes on."""
        for row in rows.online_decode.rows + rows.offline_decode.rows:
            if row.rid in builder.taken:
                continue
            if victims.make_room(row, builder.decode_pages(row)) and builder.decode(
                row, UNBOUNDED_S
            ):
                return
        partial = rows.online_partial + rows.offline_partial
        # Where nothing can be copied, a retracted request's last page stays on the host for ever.
        fetches = snapshot.resources.copy_pages_per_step > 0
        for row in [*partial, *snapshot.online_waiting, *snapshot.offline_waiting]:
            if row.rid in builder.taken or (row.host_tokens and fetches):
                continue
            if builder.chunk(row, UNBOUNDED_S):
                return
        unblock(builder, partial, victims)

    def _fetch(self, builder: PlanBuilder, rows: RowsByRole, snapshot: Snapshot) -> None:
        for row in rows.prefetching:
            if row.rid not in builder.taken and (builder.is_empty or not self._chance(3)):
                builder.prefetch(row)
        for row in [*snapshot.online_waiting, *snapshot.offline_waiting]:
            if row.host_tokens == 0 or row.rid in builder.taken:
                continue
            if builder.is_empty or self._chance(3):
                builder.prefetch(row)

    def _safepoints(self, builder: PlanBuilder) -> Safepoints:
        limits = builder.snapshot.limits
        if not builder.num_offline or self._chance(4):
            return UNARMED
        interval_s = self._interval_s(builder.snapshot)
        if builder.num_online:
            return Safepoints(SafepointMode.DROP, interval_s) if limits.row_drop else UNARMED
        if not builder.has_chunks and not limits.decode_safepoints:
            return UNARMED
        if builder.has_chunks and not limits.prefill_safepoints:
            return UNARMED
        return Safepoints(SafepointMode.ABORT, interval_s)

    def _next(self) -> int:
        self._state = (self._state * 6364136223846793005 + 1442695040888963407) % (1 << 64)
        return self._state >> 33

    def _chance(self, one_in: int) -> bool:
        return self._next() % one_in == 0
