"""Asks the policy, checks its answer, and pairs each outcome with its plan.

Shared by SGLang and by the engine in memory, so that a policy that cheats fails in both with the
same sentence. Outcomes may come one step late: ``begin`` and ``end`` carry step ids.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any, Protocol, TypeVar

from engine_adapter.scheduling.fit import FitError, summarise
from engine_adapter.scheduling.plan import (
    Arrival,
    Decision,
    FinishedStep,
    Outcome,
    RunningStep,
    SafepointMode,
    StepKind,
    StepPlan,
)
from engine_adapter.scheduling.policies.base import SchedulingPolicy
from engine_adapter.scheduling.request import (
    SLOT_PHASES,
    Phase,
    Release,
    Request,
    RequestClass,
    new_pages,
    pages_cut,
    pages_for,
)
from engine_adapter.scheduling.snapshot import Snapshot

# --- The last predicted and measured step times, for judging the model on its own work.


class StepLog:
    """Keeps ``(kind, predicted_s, measured_s)`` of the newest steps that can be compared.

    Args:
        size: Steps kept.
    """

    def __init__(self, size: int = 1000) -> None:
        self._steps: deque[tuple[StepKind, float, float]] = deque(maxlen=size)

    def add(self, step: FinishedStep) -> None:
        """Take in a finished step; a stopped or untimed one is passed over."""
        if step.is_comparable:
            self._steps.append((step.plan.kind, step.plan.predicted_s, step.outcome.measured_s))

    def errors(self) -> dict[StepKind, FitError]:
        """Relative errors per step kind."""
        by_kind: dict[StepKind, list[float]] = {}
        for kind, predicted_s, measured_s in self._steps:
            by_kind.setdefault(kind, []).append(abs(predicted_s - measured_s) / measured_s)
        return {kind: summarise(values) for kind, values in by_kind.items()}

    def to_plain(self, num_recent: int = 200) -> dict[str, Any]:
        """Errors per kind, and the newest steps as ``[kind, predicted ms, measured ms]``."""
        recent = list(self._steps)[-num_recent:]
        return {
            "errors": {str(kind): asdict(error) for kind, error in self.errors().items()},
            "recent": [
                [str(kind), round(predicted_s * 1e3, 3), round(measured_s * 1e3, 3)]
                for kind, predicted_s, measured_s in recent
            ],
        }


# --- The seam between the driver and whatever executes steps.


Step = TypeVar("Step")


class ExecutionPort(Protocol[Step]):
    """SGLang with the plugin, or an engine in memory.

    A step goes ``snapshot`` -> plan and check (:class:`Driver`) -> ``compose`` -> ``launch`` ...
    ``outcomes``. Outcomes of step n may come after the snapshot of step n + 1: that is the overlap
    of a real engine.
    """

    def snapshot(self) -> Snapshot:
        """The state before the next step; its step id has not been used before."""
        ...

    def compose(self, plan: StepPlan) -> Step | None:
        """Carry the plan out up to its forward pass; None if it computes nothing."""
        ...

    def launch(self, step: Step) -> RunningStep:
        """Launch the forward pass of the step that was composed last."""
        ...

    def outcomes(self) -> list[Outcome]:
        """Outcomes that became known since the last call, oldest first."""
        ...

    def apply(self, plan: StepPlan) -> RunningStep | None:
        """Carry the plan out and launch its forward pass; None if it computes nothing."""
        step = self.compose(plan)
        return None if step is None else self.launch(step)


# --- The rules every plan keeps, checked from the snapshot alone.
#
# The check shares no bookkeeping with the policies: it recounts. A plan that takes the snapshot's
# ready requests in order is recounted with the snapshot's own sums, any other request by request.


DECODE, ONLINE = Phase.DECODE, RequestClass.ONLINE


class PlanRejected(Exception):
    """A policy's plan breaks a rule. The message names the rule, the request and the numbers."""

    def __init__(self, step_id: int, reason: str) -> None:
        """Keep the step for the log."""
        super().__init__(f"plan of step {step_id} rejected: {reason}")
        self.step_id = step_id
        self.reason = reason


class _Check:
    """Counts what one plan promises."""

    def __init__(self, plan: StepPlan, snapshot: Snapshot) -> None:
        self.plan = plan
        self.snapshot = snapshot
        self.page_tokens = snapshot.resources.page_tokens
        self.seen: set[str] = set()
        self.pages = 0
        self.release = Release()
        self.slots = 0
        self.offline_slots = 0
        self.num_online = 0
        self.num_offline = 0
        self.unmixable: str | None = None
        self.to_host = self.copies = 0  # of those that are cut: pages claimed, pages moved

    def fail(self, reason: str) -> PlanRejected:
        return PlanRejected(self.plan.step_id, reason)

    def claim(self, rid: str, act: str) -> Request:
        """Look the request up; no request has two acts in one step."""
        request = self.snapshot.requests.get(rid)
        if request is None:
            raise self.fail(f"{act} names unknown request {rid}")
        if rid in self.seen:
            raise self.fail(f"request {rid} appears twice ({act})")
        self.seen.add(rid)
        return request

    def run(self) -> None:
        if self.plan.step_id != self.snapshot.step_id:
            raise self.fail(f"it answers the snapshot of step {self.snapshot.step_id}")
        self.check_decode()
        self.check_prefill()
        self.check_retracts()
        self.check_cuts()
        self.check_restores()
        self.check_parks()
        self.check_checkpoints()
        self.check_totals()
        self.check_safepoints()

    def ran(self, request: Request) -> None:
        if request.request_class is ONLINE:
            self.num_online += 1
        else:
            self.num_offline += 1
        if not request.can_mix:
            self.unmixable = request.rid

    def check_decode(self) -> None:
        plan, online, offline = self.plan, self.snapshot.online_ready, self.snapshot.offline_ready
        num_online = len(online.requests)
        num_offline = len(plan.decode) - num_online
        if num_offline < 0 or plan.decode != online.rids + offline.rids[:num_offline]:
            self.check_decode_requests()
            return
        # The usual step: every ready online request, and offline ones from the front. Ids and
        # phases hold then, none is there twice, and the snapshot has counted what they take.
        self.pages += online.pages.total + offline.pages.front(num_offline)
        self.num_online += num_online
        self.num_offline += num_offline
        if plan.prefill or plan.retracts or plan.cuts or plan.restores or plan.parks:
            self.seen.update(plan.decode)
        if plan.prefill and not (online.can_mix and offline.can_mix):
            taken = chain(online.requests, offline.requests[:num_offline])
            self.unmixable = next((request.rid for request in taken if not request.can_mix), None)

    def check_decode_requests(self) -> None:
        # Any other set of requests, each looked up: a few passes, each without a branch of its own
        # for each request.
        decode = self.plan.decode
        self.seen.update(decode)
        if len(self.seen) != len(decode):
            twice = next(rid for i, rid in enumerate(decode) if rid in decode[:i])
            raise self.fail(f"request {twice} appears twice (decode)")
        requests = self.snapshot.requests
        try:
            found = [requests[rid] for rid in decode]
        except KeyError as unknown:
            raise self.fail(f"decode names unknown request {unknown.args[0]}") from None
        if [request.phase for request in found].count(DECODE) != len(found):
            request = next(request for request in found if request.phase is not DECODE)
            raise self.fail(f"decode of {request.rid}, which is in phase {request.phase.name}")
        page_tokens = self.page_tokens
        pages = [
            -(-(request.computed_tokens + 1) // page_tokens) - request.device_pages
            for request in found
        ]
        self.pages += sum([num for num in pages if num > 0])
        num_online = [request.request_class for request in found].count(ONLINE)
        self.num_online += num_online
        self.num_offline += len(found) - num_online
        if self.plan.prefill:  # else nothing is mixed
            self.unmixable = next((request.rid for request in found if not request.can_mix), None)

    def check_prefill(self) -> None:
        page_tokens = self.page_tokens
        for chunk in self.plan.prefill:
            request = self.claim(chunk.rid, "prefill")
            if request.phase in (Phase.DECODE, Phase.RESTORING):
                raise self.fail(f"prefill of {request.rid}, which is in phase {request.phase.name}")
            start = request.start_tokens
            remaining = request.fill_tokens - start
            if not 1 <= chunk.num_tokens <= remaining:
                raise self.fail(
                    f"chunk of {chunk.num_tokens} tokens for {request.rid}, "
                    f"which has {remaining} left"
                )
            end = start + chunk.num_tokens
            if chunk.num_tokens < remaining and end % page_tokens:
                raise self.fail(f"chunk of {request.rid} ends at {end}, inside a page")
            self.pages += new_pages(request, chunk.num_tokens, page_tokens)
            if request.phase not in SLOT_PHASES:
                self.take_slot(request)
            self.ran(request)

    def check_retracts(self) -> None:
        for rid in self.plan.retracts:
            request = self.claim(rid, "retract")
            if not request.holds_slot:
                raise self.fail(f"retract of {rid}, which holds no slot")
            if request.in_flight and not self.snapshot.limits.retracts_in_flight:
                raise self.fail(f"retract of {rid}, whose last step is not processed yet")
            self.pages -= self.release.add(request)
            self.slots -= 1
            if not request.is_online:
                self.offline_slots -= 1

    def check_cuts(self) -> None:
        resources = self.snapshot.resources
        if self.plan.cuts and not self.snapshot.limits.cuts:
            raise self.fail("the executor takes all of a request's pages or none")
        for cut in self.plan.cuts:
            request = self.claim(cut.rid, "cut")
            if not request.holds_slot or request.shared:
                raise self.fail(f"cut of {request.rid}, which has no end of its own to give")
            if request.in_flight or request.host_pages_pending:
                raise self.fail(f"cut of {request.rid}, whose last step or copy is under way")
            kept = cut.keep_tokens
            if kept % resources.host_page_tokens or not 0 < kept < request.computed_tokens:
                raise self.fail(f"cut of {request.rid} to {kept} tokens")
            self.pages -= request.device_pages - pages_for(kept, self.page_tokens)
            moved, claimed = pages_cut(request, kept, resources.host_page_tokens)
            self.copies += moved
            self.to_host += claimed

    def check_restores(self) -> None:
        resources = self.snapshot.resources
        for order in self.plan.restores:
            request = self.claim(order.rid, "restore")
            end = order.from_page + order.num_pages
            expected = request.restored_pages if request.phase is Phase.RESTORING else 0
            if request.phase not in (Phase.RESTORING, Phase.RETRACTED):
                raise self.fail(f"restore of {request.rid}, which is in phase {request.phase.name}")
            if order.from_page != expected or order.num_pages < 1:
                raise self.fail(
                    f"restore of {request.rid} from page {order.from_page}, expected {expected}"
                )
            if end > pages_for(request.host_tokens, resources.host_page_tokens):
                raise self.fail(f"restore of {request.rid} to page {end}, which is not on the host")
            tokens = min(end * resources.host_page_tokens, request.host_tokens)
            self.pages += max(0, pages_for(tokens, resources.page_tokens) - request.device_pages)
            if not request.holds_slot:
                self.take_slot(request)

    def check_parks(self) -> None:
        requests, parks = self.snapshot.requests, self.plan.parks
        for rid in parks:
            request = requests.get(rid)
            if request is None or request.phase not in SLOT_PHASES:
                raise self.fail(f"park of {rid}, which holds no slot")
        if not self.seen.isdisjoint(parks):
            twice = next(rid for rid in parks if rid in self.seen)
            raise self.fail(f"request {twice} appears twice (park)")

    def check_checkpoints(self) -> None:
        resources = self.snapshot.resources
        retracted = set(self.plan.retracts)
        copies = self.copies + sum(order.num_pages for order in self.plan.restores)
        to_host, ordered = self.to_host, 0
        for order in self.plan.checkpoints:
            request = self.snapshot.requests.get(order.rid)
            if request is None or not request.holds_slot or order.rid in retracted:
                raise self.fail(f"checkpoint of {order.rid}, which holds no pages")
            expected = request.host_pages + request.host_pages_pending
            if order.from_page != expected or order.num_pages < 1:
                raise self.fail(
                    f"checkpoint of {order.rid} from page {order.from_page}, expected {expected}"
                )
            end = (order.from_page + order.num_pages) * resources.host_page_tokens
            if end > request.computed_tokens:
                raise self.fail(
                    f"checkpoint of {order.rid} up to token {end}, "
                    f"of which {request.computed_tokens} are computed"
                )
            ordered += order.num_pages
        to_host += ordered
        if to_host > resources.host_free_pages:
            raise self.fail(f"{to_host} pages for a host pool with {resources.host_free_pages}")
        if copies + ordered > resources.copy_pages_per_step:
            raise self.fail(
                f"{copies + ordered} page copies in a step that hides "
                f"{resources.copy_pages_per_step}"
            )

    def take_slot(self, request: Request) -> None:
        self.slots += 1
        if request.request_class is not ONLINE:
            self.offline_slots += 1

    def check_totals(self) -> None:
        plan, resources, limits = self.plan, self.snapshot.resources, self.snapshot.limits
        if self.pages > resources.available_pages:
            raise self.fail(f"{self.pages} pages promised, {resources.available_pages} available")
        if self.slots > resources.free_slots:
            raise self.fail(f"{self.slots} slots promised, {resources.free_slots} free")
        if self.offline_slots > 0:
            held = len(self.snapshot.offline_running)
            allowed = resources.total_slots - resources.reserved_slots
            if held + self.offline_slots > allowed:
                raise self.fail(
                    f"offline requests would hold {held + self.offline_slots} slots, "
                    f"{allowed} are open to them"
                )
        tokens = sum(chunk.num_tokens for chunk in plan.prefill)
        if tokens > limits.max_chunk_tokens:
            raise self.fail(f"{tokens} prompt tokens, at most {limits.max_chunk_tokens} per step")
        if self.num_online + self.num_offline > limits.max_batch_size:
            raise self.fail(f"{self.num_online + self.num_offline} requests in one step")
        if plan.decode and plan.prefill:
            if not limits.can_mix:
                raise self.fail("decoding requests and prompt tokens in one step")
            if self.unmixable is not None:
                raise self.fail(f"request {self.unmixable} cannot share a mixed step")
        if not (plan.predicted_s >= 0.0 and math.isfinite(plan.predicted_s)):
            raise self.fail(f"predicted time {plan.predicted_s}")

    def check_safepoints(self) -> None:
        plan, limits = self.plan, self.snapshot.limits
        mode = plan.safepoints.mode
        if mode is SafepointMode.NONE:
            return
        if plan.safepoints.interval_s <= 0.0:
            raise self.fail("safepoints without an interval")
        if self.num_offline == 0:
            raise self.fail("safepoints in a step without offline requests")
        if mode is SafepointMode.ABORT:
            if self.num_online:
                raise self.fail("an abort would throw online requests away")
            if plan.prefill and not limits.prefill_safepoints:
                raise self.fail("the executor cannot abort prompt tokens")
            if not plan.prefill and not limits.decode_safepoints:
                raise self.fail("the executor cannot abort decodes")
        elif not limits.request_drop:
            raise self.fail("the executor cannot drop requests")


def check_plan(plan: StepPlan, snapshot: Snapshot) -> None:
    """Hold a plan against its snapshot.

    Raises:
        PlanRejected: On the first rule it breaks.
    """
    _Check(plan, snapshot).run()


@dataclass(frozen=True, slots=True)
class CheckedPlan:
    """A plan that keeps every promise of its snapshot."""

    step_id: int
    plan: StepPlan


class Driver:
    """Runs one policy against one port.

    Args:
        policy: Decides the steps.
        max_pending: Plans that may wait for their outcome; older ones are forgotten.

    Attributes:
        policy: The policy that plans now.
        step_log: Predicted and measured times of the newest steps.
    """

    def __init__(self, policy: SchedulingPolicy, max_pending: int = 8) -> None:
        """Start with no step begun."""
        self.policy = policy
        self.step_log = StepLog()
        self._max_pending = max_pending
        self._pending: dict[int, StepPlan] = {}
        self._last_step_id = -1

    def begin(self, snapshot: Snapshot) -> CheckedPlan:
        """Plan the next step.

        Raises:
            ValueError: If the step id does not increase.
            PlanRejected: If the plan breaks a rule; nothing has been applied then.
        """
        if snapshot.step_id <= self._last_step_id:
            raise ValueError(
                f"step {snapshot.step_id} begins after step {self._last_step_id}: ids must increase"
            )
        plan = self.policy.plan(snapshot)
        check_plan(plan, snapshot)
        self._last_step_id = snapshot.step_id
        if not plan.is_empty:
            self._pending[plan.step_id] = plan
            while len(self._pending) > self._max_pending:
                del self._pending[min(self._pending)]
        return CheckedPlan(plan.step_id, plan)

    def arrival(self, arrival: Arrival, step: RunningStep | None) -> Decision:
        """Ask what the running step is told; called on the monitor's thread."""
        if step is None:
            return Decision.CONTINUE
        return self.policy.at_arrival(arrival, step)

    def end(self, step_id: int, outcome: Outcome) -> FinishedStep | None:
        """Report what a step did; None if the step is not known (any more).

        Raises:
            ValueError: If the outcome belongs to another step.
        """
        if outcome.step_id != step_id:
            raise ValueError(f"outcome of step {outcome.step_id} reported for step {step_id}")
        plan = self._pending.pop(step_id, None)
        if plan is None:
            return None
        finished = FinishedStep(plan, outcome)
        if math.isfinite(outcome.measured_s):
            self.policy.observe(finished)
            self.step_log.add(finished)
        return finished

    def switch(self, policy: SchedulingPolicy) -> None:
        """Go on with another policy; plans already begun are reported to the new one."""
        self.policy = policy
