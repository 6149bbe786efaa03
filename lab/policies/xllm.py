"""xLLM's co-serving, as far as it is described in public (arXiv 2510.14686, section 3.1).

Online requests preempt offline ones when they come; what an iteration may hold beside them is
found with a latency model and the pace target. Offline decoding requests join the shortest first,
since those cost the pace least; offline prompts get what is left. A running step is never stopped:
layer-wise interruption is described for NPUs only. KV that is taken away is computed again.
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
from engine_adapter.scheduling.snapshot import DecodeReady, Snapshot


class Xllm(PolicyBase):
    """A latency-bound batch, no stop inside a step."""

    name = "xllm"

    def __init__(self, model: LatencyModel, settings: PolicySettings | None = None) -> None:
        """Bind the latency model and the knobs."""
        super().__init__(model, settings)
        self._order = OfflineOrder(self.settings.batch_min_share)
        self._online = OnlineFiller()

    def plan(self, snapshot: Snapshot) -> StepPlan:
        """Online requests, then offline ones inside the pace target."""
        builder = self._builder(snapshot)
        requests = RequestsByPhase.of(snapshot)
        victims = VictimPool(builder, requests.offline, requests.online)
        if requests.has_online:
            gap_s = self._online.take(builder, requests, victims)
            builder.hold_back()
            self._fill_beside(builder, requests, snapshot.slo.tbt_s - gap_s)
            self._online.close(builder.predicted_s())
        else:
            self._fill_alone(builder, requests, victims)
        unblock(builder, requests.offline_partial, victims)
        return builder.build(snapshot.slo.tbt_s if requests.has_online else UNBOUNDED_S)

    def _fill_beside(
        self, builder: PlanBuilder, requests: RequestsByPhase, budget_s: float
    ) -> None:
        shortest = sorted(
            requests.offline_decode.requests, key=lambda request: request.computed_tokens
        )
        builder.decode_run(
            builder.untaken(DecodeReady(shortest, builder.page_tokens)), max(0.0, budget_s)
        )
        waiting = () if builder.makes_room else self._order.waiting(builder.snapshot)
        for request in [*requests.offline_partial, *waiting]:
            if request.rid in builder.taken:
                continue
            whole = pages_for(request.fill_tokens, builder.page_tokens)
            if not request.holds_slot and whole > builder.pages_left:
                return
            if builder.chunk(request, budget_s) < request.remaining_tokens:
                return

    def _fill_alone(
        self, builder: PlanBuilder, requests: RequestsByPhase, victims: VictimPool
    ) -> None:
        growth = self.settings.growth_tokens * (len(requests.offline) + 1)
        keep_pages = pages_for(growth, builder.page_tokens)
        mixes = builder.snapshot.limits.can_mix and all(
            request.can_mix for request in requests.offline
        )
        if mixes:
            take_all_decode(builder, requests.offline_decode, victims)
        if mixes or len(requests.offline_decode) < 2:
            take_prompts(builder, requests.offline_partial, keep_pages)
            if not builder.makes_room:
                take_prompts(builder, self._order.waiting(builder.snapshot), keep_pages)
        if builder.is_empty:
            take_all_decode(builder, requests.offline_decode, victims)
