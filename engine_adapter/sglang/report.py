"""What the runtime says about itself, as plain data.

Status page, readiness, metrics and tests read it through SGLang's internal state.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

from engine_adapter.scheduling.plan import Outcome
from engine_adapter.scheduling.policies.settings import PolicySettings
from engine_adapter.scheduling.request import Phase, Request, RequestClass
from engine_adapter.scheduling.snapshot import Resources
from engine_adapter.sglang.live_requests import LaunchedStep, classify

if TYPE_CHECKING:
    from engine_adapter.sglang.queueing import QueueingScheduler

# --- What it has done so far.

# An engine's first steps touch its memory for the first time; SGLang's own first request is nine.
COLD_STEPS = 10


@dataclass(slots=True)
class StopsAtLayer:
    """Passes stopped at one layer.

    Attributes:
        num: How many.
        sum_s: Time from stop word to stop, added up.
    """

    num: int = 0
    sum_s: float = 0.0


@dataclass(slots=True)
class Counters:
    """Totals since start; tokens are kept tokens unless said otherwise.

    Attributes:
        steps: Steps launched.
        online_tokens: Tokens computed for online requests.
        offline_tokens: Tokens computed for flex and offline requests.
        flex_tokens: Those of ``offline_tokens`` that were computed for flex requests.
        aborts: Offline-only steps stopped between layers.
        drops: Mixed steps that lost their offline requests between layers.
        undone_requests: Requests whose work in a stopped step was thrown away.
        parks: Requests left out of a step that could have run (request steps).
        parked_requests: Requests that the newest step left out; a gauge, no total.
        retracts: Requests that gave slot and pages up.
        recomputed_tokens: Those of ``offline_tokens`` that had been computed before a retract.
        recomputed_online_tokens: Likewise those of ``online_tokens``.
        rejected_plans: Plans the driver refused.
        policy_errors: Steps at which the policy raised an error, in plans or reports.
        last_policy_error: The newest of them in words; empty without one.
        reaped_requests: Aborted requests ended without a forward pass.
        plan_cpu_s: Thread CPU time in snapshot, plan, check and actuate, copies of pages apart.
        step_s: Time in forward passes.
        step_cpu_s: Thread CPU time of the same passes; where a device computes, of their launches.
        predicted_s: Predicted time of the same passes.
        stops_by_layer: How many passes were stopped at each layer, and how long after the word.
        stop_layers: Layers at which passes were stopped, newest last, bounded.
        flag_to_stop_s: Time from stop word to stop, newest last, bounded.
    """

    steps: int = 0
    online_tokens: int = 0
    offline_tokens: int = 0
    flex_tokens: int = 0
    aborts: int = 0
    drops: int = 0
    undone_requests: int = 0
    parks: int = 0
    parked_requests: int = 0
    retracts: int = 0
    recomputed_tokens: int = 0
    recomputed_online_tokens: int = 0
    rejected_plans: int = 0
    policy_errors: int = 0
    last_policy_error: str = ""
    reaped_requests: int = 0
    plan_cpu_s: float = 0.0
    step_s: float = 0.0
    step_cpu_s: float = 0.0
    predicted_s: float = 0.0
    stops_by_layer: dict[str, StopsAtLayer] = field(default_factory=dict)
    stop_layers: list[int] = field(default_factory=list)
    flag_to_stop_s: list[float] = field(default_factory=list)

    @property
    def is_warm(self) -> bool:
        """Whether the next step's time says something about those to come."""
        return self.steps >= COLD_STEPS

    def stopped(self, layer: int, flag_to_stop_s: float, num_requests: int) -> None:
        self.undone_requests += num_requests
        at_layer = self.stops_by_layer.setdefault(str(layer), StopsAtLayer())
        at_layer.num += 1
        at_layer.sum_s += flag_to_stop_s
        self.stop_layers = [*self.stop_layers[-255:], layer]
        self.flag_to_stop_s = [*self.flag_to_stop_s[-255:], flag_to_stop_s]

    def to_plain(self) -> dict[str, Any]:
        """Numbers, lists and dicts only."""
        return asdict(self)


# --- The newest steps, one line each, for a page that draws them.

NUM_KEPT: Final = 200


class RecentSteps:
    """A ring of finished steps."""

    def __init__(self) -> None:
        self._steps: deque[tuple[Any, ...]] = deque(maxlen=NUM_KEPT)

    def add(self, step: LaunchedStep, outcome: Outcome, flex_tokens: int) -> None:
        """Take in a finished step."""
        self._steps.append(
            (
                step.started_at_s,
                outcome.online_tokens,
                flex_tokens,
                outcome.offline_tokens - flex_tokens,
                round(step.plan.predicted_s * 1e3, 3),
                round(outcome.measured_s * 1e3, 3),
                outcome.stopped_at_layer,
            )
        )

    def to_plain(self, now_s: float) -> list[list[Any]]:
        """Oldest first.

        Each: seconds since its launch, tokens kept of online, flex and offline requests, predicted
        ms, measured ms, and the layer at which it was stopped or None.
        """
        return [[round(now_s - started_s, 3), *rest] for started_s, *rest in self._steps]


# --- Time between two forward passes: part of every gap between tokens, and no part of a pass.

WEIGHT = 0.1
LONGEST_GAP_S = 0.05


class PassGap:
    """Weighted mean of the gaps between passes that follow each other without a pause.

    Attributes:
        mean_s: The mean; 0 until two passes followed each other.
    """

    def __init__(self) -> None:
        self.mean_s = 0.0
        self._ended_at_s: float | None = None

    def started(self, at_s: float) -> None:
        """A pass begins. Longer gaps are idle time, profiling or a stall and say nothing."""
        if self._ended_at_s is None:
            return
        gap_s = at_s - self._ended_at_s
        if 0.0 <= gap_s <= LONGEST_GAP_S:
            weight = WEIGHT if self.mean_s else 1.0
            self.mean_s += weight * (gap_s - self.mean_s)

    def ended(self, at_s: float) -> None:
        self._ended_at_s = at_s


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


# --- All of it.


class Reporter:
    """Reads the parts of one scheduler."""

    def __init__(self, scheduler: QueueingScheduler) -> None:
        self._scheduler = scheduler

    def to_plain(self) -> dict[str, Any]:
        """Numbers, strings, lists and dicts only."""
        s = self._scheduler
        runtime = s.runtime
        holding = [live.request for live in runtime.requests.holding.values()]
        resources = runtime.snapshots.resources()
        step_cpu_s = max(runtime.counters.step_cpu_s, 1e-9)
        tokens = runtime.counters.online_tokens + runtime.counters.offline_tokens
        return {
            **runtime.counters.to_plain(),
            "policy": runtime.planner.policy_name,
            "tbt_share": runtime.planner.tbt_share,
            "step_level": runtime.planner.step_level,
            "step_times": runtime.planner.driver.step_log.to_plain(),
            "profile": runtime.profiler.progress(),
            "token_costs": runtime.profiler.token_costs(),
            "slo": {"ttft_s": runtime.snapshots.slo.ttft_s, "tbt_s": runtime.snapshots.slo.tbt_s},
            "attained": runtime.attained.to_plain(runtime.snapshots.slo),
            "isolation": {**runtime.isolation.to_plain(), "pauses": runtime.pauses.to_plain()},
            "recent_steps": runtime.recent_steps.to_plain(time.monotonic()),
            "waiting": runtime.requests.roster.num_waiting,
            "retracted": runtime.requests.roster.num_retracted,
            "holding": len(holding),
            "decoding": sum(request.phase is Phase.DECODE for request in holding),
            "prefilling": sum(request.phase is Phase.PREFILL for request in holding),
            "restoring": sum(request.phase is Phase.RESTORING for request in holding),
            "by_batch": states_by_batch(
                (live.request for live in runtime.requests), runtime.parked
            ),
            "free_slots": resources.free_slots,
            "flex_room": self._flex_room(resources),
            "harvested_share": runtime.counters.offline_tokens / max(1, tokens),
            "pass_gap_s": runtime.pass_gap.mean_s,
            "page_tokens": s.page_size,
            "free_pages": resources.free_pages,
            "evictable_pages": resources.evictable_pages,
            "host_free_pages": resources.host_free_pages,
            "host_total_pages": resources.host_total_pages,
            "checkpointed_pages": runtime.checkpointer.num_pages_stored,
            "checkpoint_cpu_s": runtime.checkpointer.cpu_s,
            "restore_cpu_s": runtime.restorer.cpu_s,
            "restored_tokens": runtime.restorer.num_tokens_restored,
            "restored_requests": runtime.restorer.num_requests_restored,
            "safepoint_checks": runtime.safepoints.num_checks,
            "safepoint_cpu_s": runtime.safepoints.check_cpu_s,
            "safepoint_cpu_share": runtime.safepoints.check_cpu_s / step_cpu_s,
            "arrivals_seen": s.monitor.num_arrivals if s.monitor else 0,
            "stops_raised": s.monitor.num_stops if s.monitor else 0,
            "arrivals_misjudged": s.monitor.num_misjudged if s.monitor else 0,
        }

    def _flex_room(self, resources: Resources) -> int:
        """Flex requests the service may still send: slots of their share nobody holds or wants."""
        share = PolicySettings().flex_max_share
        allowed = int(share * (resources.total_slots - resources.reserved_slots))
        requests = (live.request for live in self._scheduler.runtime.requests)
        return max(
            0, allowed - sum(request.request_class is RequestClass.FLEX for request in requests)
        )
