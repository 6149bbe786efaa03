"""The runtime's state as plain data: status page, readiness, metrics and tests read it."""

from __future__ import annotations

import time
from typing import Any

from engine_adapter.scheduling.policies.settings import PolicySettings
from engine_adapter.scheduling.request import Phase, RequestClass
from engine_adapter.scheduling.snapshot import Resources
from engine_adapter.sglang.batch_states import states_by_batch


class Reporter:
    """Reads the parts of one scheduler."""

    def __init__(self, scheduler: Any) -> None:
        """Report on ``scheduler``."""
        self._scheduler = scheduler

    def to_plain(self) -> dict[str, Any]:
        """Numbers, strings, lists and dicts only."""
        s = self._scheduler
        holding = [live.row for live in s.rows.holding.values()]
        resources = s.snapshots.resources()
        step_cpu_s = max(s.counters.step_cpu_s, 1e-9)
        tokens = s.counters.online_tokens + s.counters.offline_tokens
        return {
            **s.counters.to_plain(),
            "policy": s.planner.policy_name,
            "tbt_share": s.planner.tbt_share,
            "step_times": s.planner.driver.step_log.to_plain(),
            "profile": s.profiler.progress(),
            "token_costs": s.profiler.token_costs(),
            "slo": {"ttft_s": s.snapshots.slo.ttft_s, "tbt_s": s.snapshots.slo.tbt_s},
            "attained": s.attained.to_plain(s.snapshots.slo),
            "isolation": {**s.isolation.to_plain(), "pauses": s.pauses.to_plain()},
            "recent_steps": s.recent_steps.to_plain(time.monotonic()),
            "waiting": s.rows.roster.num_waiting,
            "retracted": s.rows.roster.num_retracted,
            "holding": len(holding),
            "decoding": sum(row.phase is Phase.DECODE for row in holding),
            "prefilling": sum(row.phase is Phase.PREFILL for row in holding),
            "restoring": sum(row.phase is Phase.PREFETCHING for row in holding),
            "by_batch": states_by_batch((live.row for live in s.rows), s.parked),
            "free_slots": resources.free_slots,
            "flex_room": self._flex_room(resources),
            "harvested_share": s.counters.offline_tokens / max(1, tokens),
            "pass_gap_s": s.pass_gap.mean_s,
            "page_tokens": s.page_size,
            "free_pages": resources.free_pages,
            "evictable_pages": resources.evictable_pages,
            "host_free_pages": resources.host_free_pages,
            "host_total_pages": resources.host_total_pages,
            "checkpointed_pages": s.checkpointer.num_pages_stored,
            "checkpoint_cpu_s": s.checkpointer.cpu_s,
            "restore_cpu_s": s.prefetcher.cpu_s,
            "restored_tokens": s.prefetcher.num_tokens_restored,
            "restored_rows": s.prefetcher.num_rows_restored,
            "safepoint_checks": s.safepoints.num_checks,
            "safepoint_cpu_s": s.safepoints.check_cpu_s,
            "safepoint_cpu_share": s.safepoints.check_cpu_s / step_cpu_s,
            "arrivals_seen": s.monitor.num_arrivals if s.monitor else 0,
            "stops_raised": s.monitor.num_stops if s.monitor else 0,
            "arrivals_misjudged": s.monitor.num_misjudged if s.monitor else 0,
        }

    def _flex_room(self, resources: Resources) -> int:
        """Flex requests the service may still send: slots of their share nobody holds or wants."""
        share = PolicySettings().flex_max_share
        allowed = int(share * (resources.total_slots - resources.reserved_slots))
        rows = (live.row for live in self._scheduler.rows)
        return max(0, allowed - sum(row.request_class is RequestClass.FLEX for row in rows))
