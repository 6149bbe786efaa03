"""FastServe: a skip-join multi-level feedback queue (Wu and others, arXiv 2305.05920, section 4).

A request enters the level whose quantum holds its first step, which its prompt decides, and sinks
a level when it has used the quantum up; each quantum is twice the one above. The highest levels
run, preempting token by token; who gives way is swapped to the host. Who has waited too long is
put on top again. Levels are read off what a request has had so far: the queue has no memory.
"""

from __future__ import annotations

import math

from engine_adapter.scheduling.builder import UNBOUNDED_S
from engine_adapter.scheduling.latency import LatencyModel, StepLoad
from engine_adapter.scheduling.plan import StepPlan
from engine_adapter.scheduling.policies.base import PolicyBase
from engine_adapter.scheduling.policies.settings import PolicySettings
from engine_adapter.scheduling.ranked import Ranked
from engine_adapter.scheduling.request import Request
from engine_adapter.scheduling.snapshot import Snapshot

STARVED = 64.0
"""Waited for so many times what it has had of the engine, a request is put on top."""


class FastServe(PolicyBase):
    """Short answers overtake long ones without being known in advance."""

    name = "fastserve"

    def __init__(self, model: LatencyModel, settings: PolicySettings | None = None) -> None:
        """The top level's quantum is the time of one decode step."""
        super().__init__(model, settings)
        self._profiled = model  # levels are fixed: they do not follow the machine's slowdown
        load = StepLoad()
        load.add_decode(512)
        self._token_s = max(1e-6, model.predict(load))
        self._last_was_prompts = False

    def level(self, request: Request, now_s: float) -> int:
        """Where the request stands, from 0 on."""
        load = StepLoad()
        load.add_chunk(request.prompt_tokens, 0)
        served_s = self._profiled.predict(load) + request.output_tokens * self._token_s
        if now_s - request.arrival_at_s > STARVED * served_s:
            return 0
        return int(math.log2(1.0 + served_s / self._token_s))

    def plan(self, snapshot: Snapshot) -> StepPlan:
        """The highest levels first; in a level, who came first."""
        now_s = snapshot.now_s
        levels = {request.rid: self.level(request, now_s) for request in snapshot.requests.values()}

        def rank(request: Request) -> tuple[float, ...]:
            return (levels[request.rid], request.sequence)

        builder = self._builder(snapshot)
        ranked = Ranked(builder, rank, swaps=True)
        waiting = sorted([*snapshot.online_waiting, *snapshot.offline_waiting], key=rank)
        if ranked.mixes:
            ranked.take_decode()
        if ranked.mixes or not self._last_was_prompts:
            ranked.take_prompts(waiting, displaces=True)
        if not builder.has_chunks:
            ranked.take_decode()
        self._last_was_prompts = builder.has_chunks and not builder.has_decode
        ranked.go_on(waiting)
        return builder.build(UNBOUNDED_S)
