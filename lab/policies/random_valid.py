"""Test only: plans that are valid and otherwise senseless.

Drives an engine through combinations no sensible policy would choose: requests parked and resumed
at any moment, prompts cut anywhere, retracts without need, copies of any size. The numbers come
from a linear congruential generator, so that a run can be repeated.
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
from engine_adapter.scheduling.queue import RequestsByPhase
from engine_adapter.scheduling.request import Phase, Request
from engine_adapter.scheduling.snapshot import Snapshot


class RandomValid(PolicyBase):
    """Throws a coin for every request."""

    name = "random_valid"

    def __init__(
        self, model: LatencyModel, settings: PolicySettings | None = None, seed: int = 1
    ) -> None:
        """Start the generator at ``seed``."""
        super().__init__(model, settings)
        self._state = seed

    def plan(self, snapshot: Snapshot) -> StepPlan:
        """Any subset of the requests, in any amounts that fit."""
        builder = self._builder(snapshot)
        requests = RequestsByPhase.of(snapshot)
        victims = VictimPool(builder, requests.offline, requests.online)
        for request in requests.offline:
            if not request.in_flight and not request.host_pages_pending and self._chance(20):
                builder.retract(request)
        order = requests.online_decode.requests + requests.offline_decode.requests
        filling = requests.online_partial + requests.offline_partial
        if self._chance(2):
            self._take_prompts(builder, snapshot, filling)
        for request in order:
            if request.rid not in builder.taken and not self._chance(3):
                builder.decode(request, UNBOUNDED_S)
        if not builder.has_chunks and self._chance(2):
            self._take_prompts(builder, snapshot, filling)
        if builder.is_empty:
            self._take_anything(builder, requests, snapshot, victims)
        self._fetch(builder, requests, snapshot)
        for request in requests.offline + requests.online:
            if request.rid not in builder.retracted and request.phase is not Phase.RESTORING:
                pages = uncopied_pages(request, snapshot.resources.host_page_tokens)
                builder.checkpoint([(request, min(pages, 1 + self._next() % 4))])
        return builder.build(UNBOUNDED_S, self._safepoints(builder))

    def at_arrival(self, arrival: Arrival, step: RunningStep) -> Decision:
        """Stop whenever the step can be stopped; no state, other threads call this."""
        if step.safepoints.mode is SafepointMode.NONE:
            return Decision.CONTINUE
        return Decision.STOP_AT_NEXT_SAFEPOINT

    def _take_prompts(
        self, builder: PlanBuilder, snapshot: Snapshot, filling: list[Request]
    ) -> None:
        # Now and then a request is computed anew although the host has its KV.
        waiting = [r for r in snapshot.online_waiting if r.host_tokens == 0 or self._chance(8)]
        offline = [r for r in snapshot.offline_waiting if r.host_tokens == 0 or self._chance(8)]
        waiting += offline[:4]
        full = builder.chunk_left
        for request in filling + waiting:
            if request.rid in builder.taken or self._chance(4):
                continue
            left = builder.chunk_left
            builder.chunk_left = min(left, builder.page_tokens + self._next() % max(1, full))
            taken = builder.chunk(request, UNBOUNDED_S)
            builder.chunk_left = left - taken

    def _take_anything(
        self,
        builder: PlanBuilder,
        requests: RequestsByPhase,
        snapshot: Snapshot,
        victims: VictimPool,
    ) -> None:
        """The coins left the step empty: take the first request that fits, so that work goes on."""
        for request in requests.online_decode.requests + requests.offline_decode.requests:
            if request.rid in builder.taken:
                continue
            if victims.make_room(request, builder.decode_pages(request)) and builder.decode(
                request, UNBOUNDED_S
            ):
                return
        partial = requests.online_partial + requests.offline_partial
        # Where nothing can be copied, a retracted request's last page stays on the host for ever.
        fetches = snapshot.resources.copy_pages_per_step > 0
        for request in [*partial, *snapshot.online_waiting, *snapshot.offline_waiting]:
            if request.rid in builder.taken or (request.host_tokens and fetches):
                continue
            if builder.chunk(request, UNBOUNDED_S):
                return
        unblock(builder, partial, victims)

    def _fetch(self, builder: PlanBuilder, requests: RequestsByPhase, snapshot: Snapshot) -> None:
        for request in requests.restoring:
            if request.rid not in builder.taken and (builder.is_empty or not self._chance(3)):
                builder.restore(request)
        for request in [*snapshot.online_waiting, *snapshot.offline_waiting]:
            if request.host_tokens == 0 or request.rid in builder.taken:
                continue
            if builder.is_empty or self._chance(3):
                builder.restore(request)

    def _safepoints(self, builder: PlanBuilder) -> Safepoints:
        limits = builder.snapshot.limits
        if not builder.num_offline or self._chance(4):
            return UNARMED
        interval_s = self._interval_s(builder.snapshot)
        if builder.num_online:
            return Safepoints(SafepointMode.DROP, interval_s) if limits.request_drop else UNARMED
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
