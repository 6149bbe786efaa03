"""Priority admission without preemption (ConServe v2, section 6.1, NP; v1's vLLM++).

Online requests are admitted first; an offline request that runs is never left out and never loses
its pages to an online request. Steps are bounded by the executor's chunk, not by time. This is the
throughput an engine reaches when latency does not matter.
"""

from __future__ import annotations

from engine_adapter.scheduling.builder import UNBOUNDED_S
from engine_adapter.scheduling.latency import LatencyModel
from engine_adapter.scheduling.memory import VictimPool
from engine_adapter.scheduling.online import take_all_decode, take_prompts, unblock
from engine_adapter.scheduling.plan import StepPlan
from engine_adapter.scheduling.policies.base import PolicyBase
from engine_adapter.scheduling.policies.settings import PolicySettings
from engine_adapter.scheduling.queue import OfflineOrder, RequestsByPhase
from engine_adapter.scheduling.request import pages_for
from engine_adapter.scheduling.snapshot import Snapshot


class NonPreemptive(PolicyBase):
    """Everyone who runs keeps running."""

    name = "non_preemptive"

    def __init__(self, model: LatencyModel, settings: PolicySettings | None = None) -> None:
        """Bind the latency model and the knobs."""
        super().__init__(model, settings)
        self._order = OfflineOrder(0.0)
        self._last_was_prompts = False

    def plan(self, snapshot: Snapshot) -> StepPlan:
        """All decoding requests and as many prompt tokens as the chunk holds."""
        builder = self._builder(snapshot)
        requests = RequestsByPhase.of(snapshot)
        # Only running out of pages for growth takes a request's pages, newest offline request
        # first.
        victims = VictimPool(builder, requests.offline, requests.online)
        decode = (requests.online_decode, requests.offline_decode)
        num_decode = len(requests.online_decode) + len(requests.offline_decode)
        partial = requests.online_partial + requests.offline_partial
        growth = self.settings.growth_tokens * (num_decode + len(partial) + 1)
        keep_pages = pages_for(growth, builder.page_tokens)
        mixes = snapshot.limits.can_mix and all(
            [*(ready.can_mix for ready in decode), *(request.can_mix for request in partial)]
        )
        if mixes:
            for ready in decode:
                take_all_decode(builder, ready, victims)
        if mixes or not self._last_was_prompts or not num_decode:
            take_prompts(builder, partial, keep_pages)
            if not builder.retracted:
                take_prompts(builder, snapshot.online_waiting, keep_pages)
                take_prompts(builder, self._order.waiting(snapshot), keep_pages)
        if not mixes and builder.is_empty:
            for ready in decode:
                take_all_decode(builder, ready, victims)
        self._last_was_prompts = builder.has_chunks and not builder.has_decode
        unblock(builder, partial, victims)
        return builder.build(UNBOUNDED_S)
