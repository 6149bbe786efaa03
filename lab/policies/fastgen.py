"""DeepSpeed-FastGen and Sarathi-Serve without classes (Sarathi-Serve, OSDI 2024, section 4.2).

Dynamic SplitFuse: every step has as many tokens as the executor takes, decoding requests first,
the rest cut from prompts in the order they came. Short of pages, who came last is computed again.
``sarathi_p`` is the same with two priorities.
"""

from __future__ import annotations

from heapq import merge

from engine_adapter.scheduling.builder import UNBOUNDED_S
from engine_adapter.scheduling.latency import LatencyModel
from engine_adapter.scheduling.plan import StepPlan
from engine_adapter.scheduling.policies.base import PolicyBase
from engine_adapter.scheduling.policies.settings import PolicySettings
from engine_adapter.scheduling.ranked import Ranked, arrival
from engine_adapter.scheduling.snapshot import Snapshot


class FastGen(PolicyBase):
    """A full step of tokens, whoever they belong to."""

    name = "fastgen"

    def __init__(self, model: LatencyModel, settings: PolicySettings | None = None) -> None:
        """Bind the latency model and the knobs."""
        super().__init__(model, settings)
        self._last_was_prompts = False

    def plan(self, snapshot: Snapshot) -> StepPlan:
        """All that decode, then prompt tokens by arrival up to the budget."""
        builder = self._builder(snapshot)
        ranked = Ranked(builder)
        offline = sorted(snapshot.offline_waiting, key=arrival)
        waiting = list(merge(snapshot.online_waiting, offline, key=arrival))
        num_decode = len(snapshot.online_ready) + len(snapshot.offline_ready)
        if ranked.mixes:
            builder.chunk_left = max(builder.page_tokens, builder.chunk_left - num_decode)
            ranked.take_decode()
        if (ranked.mixes or not self._last_was_prompts) and not builder.retracted:
            ranked.take_prompts(waiting)
        if not builder.has_chunks:
            ranked.take_decode()
        self._last_was_prompts = builder.has_chunks and not builder.has_decode
        ranked.go_on(waiting)
        return builder.build(UNBOUNDED_S)
