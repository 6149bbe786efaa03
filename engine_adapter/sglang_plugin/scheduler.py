"""The scheduler that runs in SGLang's scheduler processes."""

from __future__ import annotations

from typing import Any

from sglang.srt.managers.scheduler import Scheduler

from engine_adapter.sglang_plugin.contract import PINNED_VERSION
from engine_adapter.sglang_plugin.live_ids import live_report, stock_holding, stock_waiting


class CoServeScheduler(Scheduler):
    """SGLang's scheduler, reporting what the service has to know."""

    def get_internal_state(self, recv_req: Any) -> Any:
        """SGLang's state and, under `coserve`, ours: `/server_info` -> `internal_states[0]`."""
        reply = super().get_internal_state(recv_req)
        reply.internal_state["coserve"] = self.coserve_state()
        return reply

    def coserve_state(self) -> dict[str, Any]:
        """Proof that the plugin is live, and the ids of live requests."""
        return {
            "version": PINNED_VERSION,
            "plugin": "live",
            "live": live_report(stock_waiting(self), stock_holding(self)),
        }
