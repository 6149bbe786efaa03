"""Policies that only an experiment has: a known one with something that a paper's may have had."""

from __future__ import annotations

import math

from engine_adapter.scheduling.builder import PlanBuilder
from engine_adapter.scheduling.latency import LatencyModel
from engine_adapter.scheduling.memory import VictimPool
from engine_adapter.scheduling.policies.base import PolicyBase
from engine_adapter.scheduling.policies.sarathi_p import SarathiP
from engine_adapter.scheduling.policies.settings import PolicySettings
from engine_adapter.scheduling.queue import RequestsByPhase
from engine_adapter.scheduling.request import Request
from engine_adapter.scheduling.snapshot import Snapshot
from lab.policies.vllm import Vllm


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
        self, builder: PlanBuilder, rows: RequestsByPhase, victims: VictimPool, mixes: bool
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
    """vLLM in which chat begins first; memory is vLLM's, so who came last gives way, chat too."""

    def in_order(self, snapshot: Snapshot) -> list[Request]:
        """Chat first, and of each class those that gave way."""
        return sorted(
            [*snapshot.online_waiting, *snapshot.offline_waiting],
            key=lambda row: (row.request_class, not row.output_tokens, row.sequence),
        )


VARIANTS: dict[str, type[PolicyBase]] = {"discarding": Discarding, "vllm_priority": PriorityVllm}
