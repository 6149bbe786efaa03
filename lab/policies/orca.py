"""Orca: batches formed anew at every step (OSDI 2022, section 3; EcoServe, section 4).

Whoever came first begins first, once there is room for the longest answer it may have: memory is
reserved to ``max_tokens``, so nobody ever gives way. Prompts are not cut; they share the step with
decoding requests (selective batching). No request has priority.
"""

from __future__ import annotations

from heapq import merge

from engine_adapter.scheduling.builder import UNBOUNDED_S
from engine_adapter.scheduling.latency import LatencyModel
from engine_adapter.scheduling.plan import StepPlan
from engine_adapter.scheduling.policies.base import PolicyBase
from engine_adapter.scheduling.policies.settings import PolicySettings
from engine_adapter.scheduling.ranked import Ranked, arrival
from engine_adapter.scheduling.request import Request
from engine_adapter.scheduling.snapshot import Snapshot


def longest_answer(request: Request) -> int:
    """Room for the prompt and as many tokens as the request may have."""
    return request.prompt_tokens + min(request.max_output_tokens, 1 << 24)


class Orca(PolicyBase):
    """First come, first served, with memory for the longest answer."""

    name = "orca"
    max_requests = 1 << 30

    def __init__(self, model: LatencyModel, settings: PolicySettings | None = None) -> None:
        """Bind the latency model and the knobs."""
        super().__init__(model, settings)
        self._last_was_prompts = False

    def plan(self, snapshot: Snapshot) -> StepPlan:
        """All that decode, then whole prompts by arrival."""
        builder = self._builder(snapshot)
        ranked = Ranked(builder, reserve=longest_answer)
        offline = sorted(snapshot.offline_waiting, key=arrival)
        waiting = list(merge(snapshot.online_waiting, offline, key=arrival))
        if ranked.mixes:
            ranked.take_decode()
        if ranked.mixes or not self._last_was_prompts:
            ranked.take_prompts(waiting, whole=True, most=self.max_requests)
        if not builder.has_chunks:
            ranked.take_decode()
        self._last_was_prompts = builder.has_chunks and not builder.has_decode
        ranked.go_on(waiting)
        return builder.build(UNBOUNDED_S)
