"""Online requests alone: the ideal the others are held against (ConServe v2, section 6.1, OO).

Offline requests wait until no online request is live **and then still wait**: they never run.
"""

from __future__ import annotations

from engine_adapter.scheduling.latency import LatencyModel
from engine_adapter.scheduling.memory import VictimPool
from engine_adapter.scheduling.online import OnlineFiller
from engine_adapter.scheduling.plan import StepPlan
from engine_adapter.scheduling.policies.base import PolicyBase
from engine_adapter.scheduling.policies.settings import PolicySettings
from engine_adapter.scheduling.queue import RequestsByPhase
from engine_adapter.scheduling.snapshot import Snapshot


class OnlineOnly(PolicyBase):
    """Serves online requests and nothing else."""

    name = "online_only"

    def __init__(self, model: LatencyModel, settings: PolicySettings | None = None) -> None:
        """Bind the latency model and the knobs."""
        super().__init__(model, settings)
        self._online = OnlineFiller(growth_tokens=self.settings.growth_tokens)

    def plan(self, snapshot: Snapshot) -> StepPlan:
        """Online decoding requests, then online prompts."""
        builder = self._builder(snapshot)
        requests = RequestsByPhase.of(snapshot)
        self._online.take(builder, requests, VictimPool(builder, requests.offline, requests.online))
        return builder.build(snapshot.slo.tbt_s)
