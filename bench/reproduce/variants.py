"""Policies that only an experiment has: a known one with something that a paper's may have had."""

from __future__ import annotations

import math

from engine_adapter.scheduling.builder import UNBOUNDED_S, PlanBuilder
from engine_adapter.scheduling.latency import LatencyModel
from engine_adapter.scheduling.memory import VictimPool
from engine_adapter.scheduling.plan import StepPlan
from engine_adapter.scheduling.policies.base import PolicyBase
from engine_adapter.scheduling.policies.sarathi_p import SarathiP
from engine_adapter.scheduling.policies.settings import PolicySettings
from engine_adapter.scheduling.policies.vllm import WATERMARK, Vllm
from engine_adapter.scheduling.queue import RowsByRole
from engine_adapter.scheduling.ranked import Ranked
from engine_adapter.scheduling.request import RequestRow
from engine_adapter.scheduling.snapshot import Snapshot


class Discarding(SarathiP):
    """Each ``every``-th online arrival throws the KV of a share of the offline requests away."""

    share = 1.0
    every = 1

    def __init__(self, model: LatencyModel, settings: PolicySettings | None = None) -> None:
        """Nobody has arrived."""
        super().__init__(model, settings)
        self._newest = -1
        self._arrivals = 0
        self._leaving: set[str] = set()

    def _fill(
        self, builder: PlanBuilder, rows: RowsByRole, victims: VictimPool, mixes: bool
    ) -> None:
        arrived = max((r.sequence for r in [*rows.online, *rows.online_waiting]), default=-1)
        if arrived > self._newest:
            self._newest = arrived
            self._arrivals += 1
            number = math.ceil(self.share * len(rows.offline))
            if self._arrivals % self.every:
                number = 0
            self._leaving.update(row.rid for row in rows.offline[len(rows.offline) - number :])
        self._leaving &= {row.rid for row in rows.offline}
        for row in rows.offline:
            if row.rid not in self._leaving or row.rid in builder.taken:
                continue
            if row.in_flight:
                builder.rest(row)
            else:
                builder.retract(row)
        super()._fill(builder, rows, victims, mixes)


class PriorityVllm(Vllm):
    """vLLM in which chat begins first; memory is vLLM's, so who came last gives way, chat too.

    ``kept`` is the share of memory that stays free when a request begins.
    """

    kept = WATERMARK

    def plan(self, snapshot: Snapshot) -> StepPlan:
        """A step of whole prompts if any can begin, else a token for everyone."""
        builder = self._builder(snapshot)
        kept = int(self.kept * snapshot.resources.total_pages) * builder.page_tokens

        def room(row: RequestRow) -> int:
            return row.computed_tokens if row.holds_slot else row.fill_tokens + 1 + kept

        ranked = Ranked(builder, reserve=room, swaps=self.swaps)
        waiting = sorted(
            [*snapshot.online_waiting, *snapshot.offline_waiting],
            key=lambda row: (row.request_class, not row.output_tokens, row.sequence),
        )
        if builder.pages_left > len(ranked.holders):
            ranked.take_prompts(waiting, whole=True)
        if not builder.has_chunks:
            ranked.take_decode()
        ranked.go_on(waiting)
        return builder.build(UNBOUNDED_S)


VARIANTS: dict[str, type[PolicyBase]] = {"discarding": Discarding, "vllm_priority": PriorityVllm}
