"""What the runtime says about itself, as plain data.

Status page, readiness, metrics and tests read it through SGLang's internal state.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any

from engine_adapter.scheduling.policies.settings import PolicySettings
from engine_adapter.scheduling.request import Phase, Request, RequestClass
from engine_adapter.scheduling.snapshot import Resources
from engine_adapter.sglang.live_requests import classify

if TYPE_CHECKING:
    from engine_adapter.scheduling.isolation import Pauses
    from engine_adapter.sglang.kv import Checkpointer, Restorer
    from engine_adapter.sglang.monitor import Monitor
    from engine_adapter.sglang.planner import Planner
    from engine_adapter.sglang.port import EnginePort
    from engine_adapter.sglang.profiler import Profiler
    from engine_adapter.sglang.safepoints import Safepoints

# --- What the requests of each batch do, for those who look at the batch.


def states_by_batch(requests: Iterable[Request], parked: Collection[str]) -> dict[str, list[int]]:
    """Batch id -> how many of its requests decode, are parked, are queued.

    Those whose prompt is being filled count as decoding, those that gave their slot up as queued.

    Args:
        requests: Every live request; those of no batch are left out.
        parked: Ids that the newest step left out, with their KV.
    """
    found: dict[str, list[int]] = {}
    for request in requests:
        if request.batch_id:
            place = 2 if not request.holds_slot else 1 if request.rid in parked else 0
            found.setdefault(request.batch_id, [0, 0, 0])[place] += 1
    return found


# --- Which requests the engine holds, by id: what the service needs to prove that an abort worked.
#
# SGLang answers 200 to every abort and lists its requests nowhere.


def live_ids(scheduler: Any) -> dict[str, Any]:
    """The `live` entry of a scheduler's state; see `live_report`."""
    return live_report(stock_waiting(scheduler), stock_holding(scheduler))


def live_report(waiting: Iterable[Any], holding: Iterable[Any]) -> dict[str, Any]:
    """The `live` entry of an engine's state.

    Args:
        waiting: SGLang's request objects without a slot.
        holding: Those with one. A request in both counts here; repeats and finished ones, whose
            batch was not filtered yet, are left out.

    Returns:
        `{"waiting": [rid], "running": [rid], "classes": {rid: "online" | "flex" | "offline"}}`.
    """
    running = {request.rid: request for request in holding if not request.finished()}
    queued = {
        request.rid: request
        for request in waiting
        if request.rid not in running and not request.finished()
    }
    return {
        "waiting": list(queued),
        "running": list(running),
        "classes": {rid: _class_label(request) for rid, request in (queued | running).items()},
    }


def stock_waiting(scheduler: Any) -> list[Any]:
    """Requests without a slot in stock SGLang: its queue, and those whose grammar is compiled."""
    return [*scheduler.waiting_queue, *scheduler.grammar_manager.grammar_queue]


def stock_holding(scheduler: Any) -> list[Any]:
    """Requests with a slot, between two steps of stock SGLang.

    They are in the running batch, in the batch that ran last (not merged into the former yet), or
    are the one half-prefilled request.
    """
    held: list[Any] = []
    for batch in (scheduler.running_batch, scheduler.last_batch):
        if batch is not None:
            held.extend(batch.reqs)
    if scheduler.chunked_req is not None:
        held.append(scheduler.chunked_req)
    return held


def _class_label(request: Any) -> str:
    terms = classify(request.priority, request.sampling_params.custom_params)
    return terms.request_class.name.lower()


# --- All of it.


class Reporter:
    """Reads the parts of one engine."""

    def __init__(
        self, port: EnginePort, planner: Planner, profiler: Profiler, pauses: Pauses
    ) -> None:
        self._port = port
        self._planner = planner
        self._profiler = profiler
        self._pauses = pauses

    def to_plain(self) -> dict[str, Any]:
        """Numbers, strings, lists and dicts only."""
        port, planner, profiler = self._port, self._planner, self._profiler
        counters, requests, slo = port.counters, port.requests, port.snapshots.slo
        holding = [live.request for live in requests.holding.values()]
        resources = port.snapshots.resources()
        tokens = counters.online_tokens + counters.offline_tokens
        return {
            **counters.to_plain(),
            "policy": planner.policy_name,
            **port.coserving.to_plain(),
            "level": planner.level,
            "tbt_share": planner.tbt_share,
            "slowdown": planner.slowdown,
            "step_times": planner.driver.step_log.to_plain(),
            "profile": profiler.progress(),
            "token_costs": profiler.token_costs(resources),
            "slo": {"ttft_s": slo.ttft_s, "tbt_s": slo.tbt_s},
            **port.finished_steps.to_plain(),
            "isolation": {
                **port.finished_steps.isolation.to_plain(),
                "pauses": self._pauses.to_plain(),
            },
            "waiting": requests.roster.num_waiting,
            "retracted": requests.roster.num_retracted,
            "holding": len(holding),
            "decoding": sum(request.phase is Phase.DECODE for request in holding),
            "prefilling": sum(request.phase is Phase.PREFILL for request in holding),
            "restoring": sum(request.phase is Phase.RESTORING for request in holding),
            "by_batch": states_by_batch((live.request for live in requests), port.parked),
            "free_slots": resources.free_slots,
            "flex_room": self._flex_room(resources),
            "harvested_share": counters.offline_tokens / max(1, tokens),
            "pass_gap_s": port.launcher.pass_gap.mean_s,
            "armed_gap_s": port.snapshots.armed_gap_s,
            "page_tokens": resources.page_tokens,
            "free_pages": resources.free_pages,
            "evictable_pages": resources.evictable_pages,
            "host_free_pages": resources.host_free_pages,
            "host_total_pages": resources.host_total_pages,
            **_copies(port.checkpointer, port.restorer),
            **_safepoints(port.safepoints, counters.step_cpu_s),
            **_arrivals(port.monitor),
        }

    def _flex_room(self, resources: Resources) -> int:
        """Flex requests the service may still send: slots of their share nobody holds or wants."""
        share = PolicySettings().flex_max_share
        allowed = int(share * (resources.total_slots - resources.reserved_slots))
        requests = (live.request for live in self._port.requests)
        return max(
            0, allowed - sum(request.request_class is RequestClass.FLEX for request in requests)
        )


def _copies(checkpointer: Checkpointer, restorer: Restorer) -> dict[str, Any]:
    return {
        "checkpointed_pages": checkpointer.num_pages_stored,
        "checkpoint_cpu_s": checkpointer.cpu_s,
        "restore_cpu_s": restorer.cpu_s,
        "restored_tokens": restorer.num_tokens_restored,
        "restored_requests": restorer.num_requests_restored,
    }


def _safepoints(safepoints: Safepoints, step_cpu_s: float) -> dict[str, Any]:
    return {
        "safepoint_checks": safepoints.num_checks,
        "safepoint_cpu_s": safepoints.check_cpu_s,
        "safepoint_cpu_share": safepoints.check_cpu_s / max(step_cpu_s, 1e-9),
    }


def _arrivals(monitor: Monitor | None) -> dict[str, Any]:
    return {
        "arrivals_seen": monitor.num_arrivals if monitor else 0,
        "stops_raised": monitor.num_stops if monitor else 0,
        "arrivals_misjudged": monitor.num_misjudged if monitor else 0,
    }
