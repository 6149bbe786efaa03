"""Chunked prefill with priority and preemption by discarding (ConServe v2, section 6.1, SP).

Sarathi-Serve's rule, a fixed number of tokens per step with decoding requests first, plus two
classes: online requests are taken first, and an online request that lacks pages or a slot takes
them from offline requests, whose KV is thrown away and computed again later. No latency model is
needed, which is why an engine without a profile runs this policy.
"""

from __future__ import annotations

from engine_adapter.scheduling.builder import UNBOUNDED_S, PlanBuilder
from engine_adapter.scheduling.latency import LatencyModel
from engine_adapter.scheduling.memory import VictimPool
from engine_adapter.scheduling.online import OnlineFiller, take_all_decode, take_prompts, unblock
from engine_adapter.scheduling.plan import StepPlan
from engine_adapter.scheduling.policies.base import PolicyBase
from engine_adapter.scheduling.policies.settings import PolicySettings
from engine_adapter.scheduling.queue import OfflineOrder, RequestsByPhase
from engine_adapter.scheduling.request import pages_for
from engine_adapter.scheduling.snapshot import Snapshot


class SarathiP(PolicyBase):
    """A token budget, two priorities, recompute on preemption."""

    name = "sarathi_p"

    def __init__(self, model: LatencyModel, settings: PolicySettings | None = None) -> None:
        """Bind the latency model and the knobs."""
        super().__init__(model, settings)
        self._order = OfflineOrder(self.settings.batch_min_share)
        self._online = OnlineFiller()

    def plan(self, snapshot: Snapshot) -> StepPlan:
        """Online requests, offline decoding requests, offline prompts, up to the token budget."""
        builder = self._builder(snapshot)
        requests = RequestsByPhase.of(snapshot)
        num_decode = len(requests.online_decode) + len(requests.offline_decode)
        builder.chunk_left = max(
            builder.page_tokens,
            min(builder.chunk_left, self.settings.token_budget - num_decode),
        )
        victims = VictimPool(builder, requests.offline, requests.online)
        self._online.take(builder, requests, victims)
        builder.hold_back()
        mixes = snapshot.limits.can_mix and all(
            request.can_mix for request in requests.offline + requests.online
        )
        if mixes or not builder.has_chunks:
            self._fill(builder, requests, victims, mixes)
        unblock(builder, requests.offline_partial, victims)
        return builder.build(UNBOUNDED_S)

    def _fill(
        self, builder: PlanBuilder, requests: RequestsByPhase, victims: VictimPool, mixes: bool
    ) -> None:
        if not mixes and builder.is_empty:
            self._take_prompts(builder, requests)
        if mixes or not builder.has_chunks:
            take_all_decode(builder, requests.offline_decode, victims)
        if mixes:
            self._take_prompts(builder, requests)

    def _take_prompts(self, builder: PlanBuilder, requests: RequestsByPhase) -> None:
        growth = self.settings.growth_tokens * (len(requests.offline) + 1)
        keep_pages = pages_for(growth, builder.page_tokens)
        take_prompts(builder, requests.offline_partial, keep_pages)
        if not builder.makes_room:
            take_prompts(builder, self._order.waiting(builder.snapshot), keep_pages)
