"""Round robin: steps of real-time and of best-effort requests in turn (BROS, section 7.1, RR).

One step takes online requests only, the next one the others only; a side with nothing to do leaves
its turn to the other. On each side it is first come, first served, with cut prompts.
"""

from __future__ import annotations

from engine_adapter.scheduling.builder import UNBOUNDED_S
from engine_adapter.scheduling.latency import LatencyModel
from engine_adapter.scheduling.plan import StepPlan
from engine_adapter.scheduling.policies.base import PolicyBase
from engine_adapter.scheduling.policies.settings import PolicySettings
from engine_adapter.scheduling.ranked import Ranked, arrival
from engine_adapter.scheduling.request import Request
from engine_adapter.scheduling.snapshot import Snapshot


class RoundRobin(PolicyBase):
    """Each side has every second step."""

    name = "round_robin"

    def __init__(self, model: LatencyModel, settings: PolicySettings | None = None) -> None:
        """Online requests have the first turn."""
        super().__init__(model, settings)
        self._online_next = True
        self._last_was_prompts = {True: False, False: False}

    def plan(self, snapshot: Snapshot) -> StepPlan:
        """The side whose turn it is; the other one if that has nothing to do."""
        builder = self._builder(snapshot)
        turn = self._online_next

        def rank(request: Request) -> tuple[float, ...]:
            return (request.is_online is not turn, request.sequence)

        ranked = Ranked(builder, rank)
        for online in (turn, not turn):
            if builder.is_empty:
                self._take(ranked, online)
        self._online_next = not builder.num_online
        ranked.go_on(sorted([*snapshot.online_waiting, *snapshot.offline_waiting], key=rank))
        return builder.build(UNBOUNDED_S)

    def _take(self, ranked: Ranked, online: bool) -> None:
        snapshot, builder = ranked.snapshot, ranked.builder
        side = [request for request in ranked.holders if request.is_online is online]
        queue = snapshot.online_waiting if online else snapshot.offline_waiting
        waiting = sorted(queue, key=arrival)
        # Prompts of the other side that have begun are not of this turn.
        ranked.holders, everyone = side, ranked.holders
        if ranked.mixes or self._last_was_prompts[online]:
            ranked.holders = everyone
            ranked.take_decode(side)
            ranked.holders = side
        if (ranked.mixes or not builder.has_decode) and not builder.retracted:
            ranked.take_prompts(waiting)
        ranked.holders = everyone
        if builder.is_empty:
            ranked.take_decode(side)
        self._last_was_prompts[online] = builder.has_chunks and not builder.has_decode
