"""A minimal engine in memory that carries plans out to the token.

Time is a number: a step takes what the engine's own latency model says, times an optional factor
per step. With ``delay_steps = 1`` results are processed after the next step was launched, as in
SGLang's overlap loop. An online arrival during a step asks ``on_arrival``; a stop takes effect at
the next multiple of the safepoint interval.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable
from dataclasses import replace

from engine_adapter.core.arrival import Arrival, Decision, RunningStep
from engine_adapter.core.outcome import Outcome
from engine_adapter.core.plan import SafepointMode, StepPlan
from engine_adapter.core.request import Phase, RequestClass, RequestRow
from engine_adapter.core.roster import Roster
from engine_adapter.core.slo import Slo
from engine_adapter.core.snapshot import Resources, Snapshot, reserved_slots
from engine_adapter.latency.model import LatencyModel
from engine_adapter.simulator.kv_mover import KvMover
from engine_adapter.simulator.kv_pool import KvPool
from engine_adapter.simulator.shape import EngineShape, Launched, Work, load_of

ArrivalHook = Callable[[Arrival, RunningStep], Decision]


class MemoryEngine:
    """An :class:`~engine_adapter.ports.ExecutionPort` without hardware."""

    def __init__(
        self,
        shape: EngineShape,
        slo: Slo,
        truth: LatencyModel,
        on_arrival: ArrivalHook | None = None,
    ) -> None:
        """Start idle at instant 0.

        Args:
            shape: Size and abilities.
            slo: Targets shown to the policy.
            truth: How long steps really take.
            on_arrival: Asked about each online arrival during a step.
        """
        self.shape = shape
        self.slo = slo
        self.now_s = 0.0
        self.roster = Roster()
        self.pool = KvPool(
            shape.total_pages, shape.page_tokens, shape.host_total_pages, shape.host_page_tokens
        )
        self._kv = KvMover(self.roster, self.pool)
        self.first_token_at: dict[str, float] = {}
        self.token_times: dict[str, list[float]] = {}
        self.finished: dict[str, RequestRow] = {}
        self.recomputed_tokens = 0
        self.offline_tokens = 0
        self.num_stops = 0
        self._truth = truth
        self._on_arrival = on_arrival
        self._future: list[tuple[float, int, RequestRow]] = []
        self._tie = 0
        self._step_id = -1
        self._launched: deque[Launched] = deque()
        self._seen: dict[str, int] = {}

    @property
    def restored_tokens(self) -> int:
        """Tokens brought back from the host."""
        return self._kv.restored_tokens

    def submit(self, row: RequestRow) -> None:
        """Let a row arrive at ``row.arrival_at_s``, now or later."""
        if row.arrival_at_s <= self.now_s:
            self.roster.add(row)
        else:
            self._tie += 1
            heapq.heappush(self._future, (row.arrival_at_s, self._tie, row))

    def cancel(self, rid: str) -> None:
        """Abort a live row."""
        row = self.roster.finish(rid)
        if row is not None:
            self._kv.release(row)

    def snapshot(self) -> Snapshot:
        """The state before the next step."""
        self._step_id += 1
        self._let_arrive(self.now_s)
        shape, pool = self.shape, self.pool
        resources = Resources(
            page_tokens=pool.page_tokens,
            host_page_tokens=pool.host_page_tokens,
            total_pages=pool.total_pages,
            free_pages=pool.free_pages,
            locked_pages=pool.total_pages - pool.free_pages,
            host_total_pages=pool.host_total_pages,
            host_free_pages=pool.host_free_pages,
            total_slots=shape.total_slots,
            free_slots=shape.total_slots - self.roster.num_running,
            reserved_slots=reserved_slots(shape.total_slots, shape.reserved_share),
            copy_pages_per_step=shape.copy_pages_per_step,
        )
        return self.roster.snapshot(self._step_id, self.now_s, self.slo, resources, shape.limits)

    def apply(self, plan: StepPlan) -> RunningStep | None:
        """Carry the plan out; the clock moves to the end of the step."""
        for rid in plan.retracts:
            self._kv.retract(self.roster.rows[rid])
        for order in plan.prefetches:
            self._kv.prefetch(self.roster.rows[order.rid], order.num_pages)
        for copy in plan.checkpoints:
            self._kv.checkpoint(self.roster.rows[copy.rid], copy.num_pages)
        if plan.is_empty:
            self._kv.finish_copies()
            self.process_results(0)
            return None
        works = [self._launch(self.roster.rows[rid], 1) for rid in plan.decode]
        works += [self._launch(self.roster.rows[c.rid], c.num_tokens) for c in plan.prefill]
        step = self._running_step(plan, works)
        outcome = self._run(plan, works, step)
        self._launched.append(Launched(plan, works, outcome, self.now_s))
        self._kv.finish_copies()
        return step

    def outcomes(self) -> list[Outcome]:
        """Outcomes known by now: all but the newest ``delay_steps``."""
        return self.process_results(self.shape.delay_steps)

    def process_results(self, keep: int) -> list[Outcome]:
        """Process launched steps until ``keep`` are left."""
        known: list[Outcome] = []
        while len(self._launched) > keep:
            launched = self._launched.popleft()
            for work in launched.works:
                self._deliver(work, launched.ended_at_s)
            known.append(replace(launched.outcome, online_gap_s=self._online_gap_s(launched)))
        in_flight = {id(work.row) for item in self._launched for work in item.works}
        for row in self.roster.rows.values():
            row.in_flight = id(row) in in_flight
        return known

    def _online_gap_s(self, launched: Launched) -> float:
        rids = (work.row.rid for work in launched.works if work.row.is_online and work.delivers)
        times = (self.token_times.get(rid, ()) for rid in rids)
        return max((found[-1] - found[-2] for found in times if len(found) > 1), default=0.0)

    def skip_to_next_arrival(self) -> bool:
        """Let an idle engine's clock jump; False if nothing will ever arrive."""
        if not self._future:
            return False
        self.now_s = max(self.now_s, self._future[0][0])
        return True

    def _let_arrive(self, until_s: float) -> None:
        while self._future and self._future[0][0] <= until_s:
            self.roster.add(heapq.heappop(self._future)[2])

    def _launch(self, row: RequestRow, num_tokens: int) -> Work:
        if not row.holds_slot:
            self.roster.start(row.rid)
            row.computed_tokens = row.cached_tokens
            self.pool.release_host(row)
        before, phase = row.computed_tokens, row.phase
        row.computed_tokens += num_tokens
        self.pool.resize(row, row.computed_tokens)
        row.in_flight = True
        if phase is Phase.PREFILL and row.computed_tokens == row.fill_tokens:
            row.phase = Phase.DECODE
        return Work(row, num_tokens, before, phase, delivers=row.phase is Phase.DECODE)

    def _running_step(self, plan: StepPlan, works: list[Work]) -> RunningStep:
        num_online = sum(1 for work in works if work.row.is_online)
        queued = sum(
            row.remaining_tokens
            for row in self.roster.rows.values()
            if row.is_online and not row.holds_slot
        )
        return RunningStep(
            step_id=plan.step_id,
            kind=plan.kind,
            started_at_s=self.now_s,
            predicted_s=plan.predicted_s,
            num_offline_rows=len(works) - num_online,
            num_online_rows=num_online,
            safepoints=plan.safepoints,
            queued_online_tokens=queued,
            slo=self.slo,
        )

    def _run(self, plan: StepPlan, works: list[Work], step: RunningStep) -> Outcome:
        """Move the clock over the step, stopping it where an arrival demands it."""
        duration_s = self._truth.predict(load_of(works))
        stop_at_s = self._stop_instant(plan, step, duration_s)
        dropped: tuple[str, ...] = ()
        layer = None
        if stop_at_s is not None:
            self.num_stops += 1
            kept = [work for work in works if work.row.is_online]
            dropped = tuple(work.row.rid for work in works if not work.row.is_online)
            for work in works:
                if not work.row.is_online:
                    self._undo(work)
            works[:] = kept
            done = (stop_at_s - step.started_at_s) / duration_s
            layer = int(done * self.shape.limits.num_layers)
            rest_s = self._truth.predict(load_of(kept)) * (1.0 - done)
            duration_s = stop_at_s - step.started_at_s + rest_s
        self.now_s += duration_s
        online = sum(work.num_tokens for work in works if work.row.is_online)
        offline = sum(work.num_tokens for work in works) - online
        return Outcome(plan.step_id, duration_s, online, offline, layer, dropped)

    def _stop_instant(self, plan: StepPlan, step: RunningStep, duration_s: float) -> float | None:
        if self._on_arrival is None:
            return None
        end_s = step.started_at_s + duration_s
        earlier = 0
        for at_s, _, row in sorted(self._future):
            if at_s >= end_s:
                break
            if row.request_class != RequestClass.ONLINE:
                continue
            arrival = Arrival(row.request_class, row.prompt_tokens, at_s, earlier)
            earlier += row.prompt_tokens
            if self._on_arrival(arrival, step) is Decision.CONTINUE:
                continue
            if plan.safepoints.mode is SafepointMode.NONE:
                continue
            interval_s = plan.safepoints.interval_s
            passed = math.floor((at_s - step.started_at_s) / interval_s) + 1
            stop_s = step.started_at_s + passed * interval_s
            return stop_s if stop_s < end_s else None
        return None

    def _undo(self, work: Work) -> None:
        row = work.row
        row.computed_tokens = work.before_tokens
        row.phase = work.before_phase
        row.in_flight = False
        self.pool.resize(row, row.computed_tokens)
        self._kv.forget_uncomputed(row)

    def _deliver(self, work: Work, at_s: float) -> None:
        row = work.row
        if row.rid not in self.roster.rows:
            return
        seen = self._seen.get(row.rid, 0)
        done = work.before_tokens + work.num_tokens
        fresh = max(0, done - max(seen, work.before_tokens))
        self._seen[row.rid] = max(seen, done)
        self.recomputed_tokens += work.num_tokens - fresh
        if not row.is_online:
            self.offline_tokens += fresh
        if not work.delivers:
            return
        row.output_tokens += 1
        self.first_token_at.setdefault(row.rid, at_s)
        self.token_times.setdefault(row.rid, []).append(at_s)
        if row.output_tokens >= row.max_output_tokens:
            self.roster.finish(row.rid)
            self.finished[row.rid] = row
            self._kv.release(row)
