"""An engine in memory that carries plans out to the token.

Time is a number: a step takes what :class:`~lab.simulator.times.StepTimes` says, times a
factor of noise. With ``delay_steps = 1`` results are processed after the next step was launched, as
in SGLang's overlap loop. An online arrival during a step asks ``on_arrival``; a stop takes effect
where that of an engine does (:func:`~engine_adapter.scheduling.derive.stopped_before_layer`).
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace

from engine_adapter.scheduling.answer_lengths import Asked, LengthPredictor
from engine_adapter.scheduling.derive import safepoint_groups, stopped_before_layer
from engine_adapter.scheduling.driver import ExecutionPort
from engine_adapter.scheduling.plan import (
    Arrival,
    Decision,
    Outcome,
    RunningStep,
    SafepointMode,
    StepPlan,
)
from engine_adapter.scheduling.request import Phase, Request, RequestClass
from engine_adapter.scheduling.roster import Roster
from engine_adapter.scheduling.snapshot import Resources, Snapshot, reserved_slots
from engine_adapter.scheduling.targets import Slo
from lab.simulator.kv_mover import KvMover
from lab.simulator.kv_pool import KvPool
from lab.simulator.shape import ChunkWork, Composed, EngineShape, Launched, Track, load_of
from lab.simulator.times import Noise, StepTimes

SMOOTH = 1 << 30
ArrivalHook = Callable[[Arrival, RunningStep], Decision]
FinishHook = Callable[[Request], None]
DECODE, ONLINE = Phase.DECODE, RequestClass.ONLINE


class MemoryEngine(ExecutionPort[Composed]):
    """The port's engine without hardware.

    Attributes:
        shape: Size and abilities.
        now_s: The clock.
        roster: Live requests.
        pool: Pages.
        tracks: Every request that ever arrived, by id.
        finished: Requests that got their last token.
        offline_tokens: Tokens computed for offline requests, none counted twice.
        offline_prompt_tokens: Those of them that were prompt tokens.
        recomputed_tokens: Tokens computed again, of any request.
        num_steps: Steps that computed something.
        num_stops: Steps that an arrival stopped.
        num_retracts: Requests that lost slot and pages.
        num_cuts: Requests that lost their last pages alone.
        num_parks: Times a running request was left out of a step.
        busy_s: Time spent in steps.
    """

    def __init__(
        self,
        shape: EngineShape,
        slo: Slo,
        times: StepTimes,
        on_arrival: ArrivalHook | None = None,
        *,
        on_finish: FinishHook | None = None,
        noise: Noise | None = None,
        predictor: LengthPredictor | None = None,
    ) -> None:
        """Start idle at instant 0.

        Args:
            shape: Size and abilities.
            slo: Targets shown to the policy.
            times: How long steps really take.
            on_arrival: Asked about each online arrival during a step.
            on_finish: Told of each request that got its last token; it may submit others.
            noise: Factors on the steps' times.
            predictor: Expects the length of each answer.
        """
        self.shape = shape
        self.slo = slo
        self.now_s = 0.0
        self.roster = Roster()
        self.pool = KvPool(
            shape.total_pages, shape.page_tokens, shape.host_total_pages, shape.host_page_tokens
        )
        self.tracks: dict[str, Track] = {}
        self.finished: dict[str, Request] = {}
        self.recomputed_tokens = 0
        self.offline_tokens = 0
        self.offline_prompt_tokens = 0
        self.num_steps = 0
        self.num_stops = 0
        self.num_retracts = 0
        self.num_cuts = 0
        self.num_parks = 0
        self.busy_s = 0.0
        self._kv = KvMover(self.roster, self.pool, shape.page_copy_s)
        self._times = times
        self._noise = noise or Noise()
        self._on_arrival = on_arrival
        self._on_finish = on_finish
        self._predictor = predictor
        # Arrivals to come, sorted; those before ``_next`` have come.
        self._future: list[tuple[float, int, Request]] = []
        self._next = 0
        self._tie = 0
        self._prefix: dict[str, tuple[str, int]] = {}
        self._answers: dict[str, int] = {}
        self._step_id = -1
        self._launched: deque[Launched] = deque()
        self._reserved = reserved_slots(shape.total_slots, shape.reserved_share)

    @property
    def restored_tokens(self) -> int:
        """Tokens brought back from the host."""
        return self._kv.restored_tokens

    @property
    def token_times(self) -> dict[str, list[float]]:
        """When each token of each request was delivered."""
        return {rid: track.times for rid, track in self.tracks.items() if track.times}

    @property
    def first_token_at(self) -> dict[str, float]:
        """When each request got its first token."""
        return {rid: track.times[0] for rid, track in self.tracks.items() if track.times}

    def submit(
        self, request: Request, prefix: tuple[str, int] | None = None, *, answer_tokens: int = 0
    ) -> None:
        """Let a request arrive at ``request.arrival_at_s``, now or later.

        Args:
            request: The request.
            prefix: Group of requests whose prompts begin alike, and how many tokens they share.
            answer_tokens: How long its answer turns out, which no policy is told; 0 is its bound.
        """
        if answer_tokens:
            self._answers[request.rid] = answer_tokens
        if prefix is None and self.shape.keeps_prompts:
            prefix = (
                request.rid,
                request.prompt_tokens - 1,
            )  # its last token is computed in any case
        if prefix is not None:
            self._prefix[request.rid] = prefix
        if request.arrival_at_s <= self.now_s:
            self._add(request)
            return
        self._tie += 1
        entry = (request.arrival_at_s, self._tie, request)
        if not self._future or self._future[-1] < entry:
            self._future.append(entry)
        else:
            insort(self._future, entry, lo=self._next)

    def cancel(self, rid: str) -> None:
        request = self.roster.finish(rid)
        if request is not None:
            self.tracks[rid].over = True
            self._kv.release(request)

    def snapshot(self) -> Snapshot:
        """The state before the next step."""
        self._step_id += 1
        self._let_arrive(self.now_s)
        shape, pool = self.shape, self.pool
        evictable = pool.prefixes.evictable_pages
        resources = Resources(
            page_tokens=pool.page_tokens,
            host_page_tokens=pool.host_page_tokens,
            total_pages=pool.total_pages,
            free_pages=pool.free_pages,
            evictable_pages=evictable,
            locked_pages=pool.total_pages - pool.free_pages - evictable,
            host_total_pages=pool.host_total_pages,
            host_free_pages=pool.host_free_pages,
            total_slots=shape.total_slots,
            free_slots=shape.total_slots - self.roster.num_running,
            reserved_slots=self._reserved,
            copy_pages_per_step=shape.copy_pages_per_step,
        )
        return self.roster.snapshot(
            self._step_id, self.now_s, self.slo, resources, shape.limits, shape.overhead_s
        )

    def compose(self, plan: StepPlan) -> Composed | None:
        """Carry the plan out up to its forward pass."""
        requests, kv = self.roster.requests, self._kv
        for rid in plan.retracts:
            self._retract(requests[rid])
        for cut in plan.cuts:
            self.num_cuts += 1
            kv.cut(requests[cut.rid], cut.keep_tokens, self.now_s)
        for order in plan.restores:
            kv.restore(requests[order.rid], order.num_pages, self.now_s)
        for copy in plan.checkpoints:
            kv.checkpoint(requests[copy.rid], copy.num_pages, self.now_s)
        if plan.is_empty:
            self._wait_for_copies()
            self.process_results(0)
            return None
        self.num_parks += len(plan.parks)
        self.now_s += self.shape.overhead_s
        tracks = self.tracks
        chunks = [self._launch_chunk(plan, tracks[c.rid], c.num_tokens) for c in plan.prefill]
        decode = [tracks[rid] for rid in plan.decode]
        return Composed(plan, decode, self._launch_decode(plan, decode), chunks)

    def launch(self, step: Composed) -> RunningStep:
        """Run the forward pass; the clock moves to its end."""
        running = self._running_step(step.plan, step.decode, step.chunks)
        self._launched.append(self._run(step, running))
        self.num_steps += 1
        self._kv.finish_copies(self.now_s)
        return running

    def outcomes(self) -> list[Outcome]:
        """Outcomes known by now: all but the newest ``delay_steps``."""
        return self.process_results(self.shape.delay_steps)

    def process_results(self, keep: int) -> list[Outcome]:
        """Process launched steps until ``keep`` are left."""
        known: list[Outcome] = []
        while len(self._launched) > keep:
            launched = self._launched.popleft()
            gap_s = self._deliver(launched)
            known.append(
                replace(launched.outcome, online_gap_s=gap_s) if gap_s else launched.outcome
            )
        return known

    @property
    def next_arrival_s(self) -> float | None:
        """When the next request arrives; None if none will."""
        return self._future[self._next][0] if self._next < len(self._future) else None

    def skip_to_next_arrival(self) -> bool:
        """Let an idle engine's clock jump; False if nothing will ever arrive."""
        if self.next_arrival_s is None:
            return False
        self.now_s = max(self.now_s, self.next_arrival_s)
        return True

    def _add(self, request: Request) -> None:
        if self._predictor is not None:
            request.expected_output_tokens = self._predictor.expect(Asked.about(request))
        self.roster.add(request)
        answer_tokens = self._answers.pop(request.rid, request.max_output_tokens)
        self.tracks[request.rid] = Track(request, request.arrival_at_s, answer_tokens)
        prefix = self._prefix.pop(request.rid, None)
        if prefix is not None:
            self.pool.prefixes.join(request, *prefix)

    def _let_arrive(self, until_s: float) -> None:
        future = self._future
        while self._next < len(future) and future[self._next][0] <= until_s:
            self._add(future[self._next][2])
            self._next += 1
        if self._next > 10_000:
            del future[: self._next]
            self._next = 0

    def _wait_for_copies(self) -> None:
        """Nothing to compute: the clock goes to the end of a copy, or to an arrival before."""
        done_s = self._kv.next_done_s
        if done_s is not None and done_s > self.now_s:
            arrival_s = self.next_arrival_s
            self.now_s = done_s if arrival_s is None else max(self.now_s, min(done_s, arrival_s))
        self._kv.finish_copies(self.now_s)

    def _retract(self, request: Request) -> None:
        self.num_retracts += 1
        track = self.tracks[request.rid]
        if request.in_flight:
            track.void_until = track.newest_step
            request.in_flight = False
        track.retractions += 1
        self._kv.retract(request)

    def _launch_decode(self, plan: StepPlan, decode: list[Track]) -> list[int]:
        pool, step_id = self.pool, plan.step_id
        ends = [track.request.computed_tokens + 1 for track in decode]
        if pool.page_tokens == 1:
            pool.claim(len(decode))
            for track, end in zip(decode, ends, strict=True):
                track.newest_step = step_id
                request = track.request
                request.device_pages = request.computed_tokens = end
                request.in_flight = True
        else:
            for track, end in zip(decode, ends, strict=True):
                track.newest_step = step_id
                request = track.request
                request.computed_tokens = end
                pool.resize(request, end)
                request.in_flight = True
        return ends

    def _launch_chunk(self, plan: StepPlan, track: Track, num_tokens: int) -> ChunkWork:
        request = track.request
        if not request.holds_slot:
            self.roster.start(request.rid)
            request.computed_tokens = request.cached_tokens
            self.pool.prefixes.start(request)
            self.pool.release_host(request)
            if track.cached < 0:
                track.cached = track.seen = request.cached_tokens
        before, phase = request.computed_tokens, request.phase
        request.computed_tokens += num_tokens
        self.pool.resize(request, request.computed_tokens)
        track.newest_step = plan.step_id
        request.in_flight = True
        if request.computed_tokens == request.fill_tokens:
            request.phase = DECODE
        return ChunkWork(
            request, track, num_tokens, before, phase, delivers=request.phase is DECODE
        )

    def _running_step(
        self, plan: StepPlan, decode: list[Track], chunks: list[ChunkWork]
    ) -> RunningStep:
        num_online = [track.request.request_class for track in decode].count(ONLINE)
        num_online += [work.request.request_class for work in chunks].count(ONLINE)
        return RunningStep(
            step_id=plan.step_id,
            kind=plan.kind,
            started_at_s=self.now_s,
            predicted_s=plan.predicted_s,
            num_offline_requests=len(decode) + len(chunks) - num_online,
            num_online_requests=num_online,
            safepoints=plan.safepoints,
            queued_online_tokens=sum([r.remaining_tokens for r in self.roster.online_waiting]),
            slo=self.slo,
        )

    def _run(self, composed: Composed, step: RunningStep) -> Launched:
        """Move the clock over the step, stopping it where an arrival demands it."""
        plan, decode = composed.plan, composed.decode
        ends, chunks = composed.ends, composed.chunks
        factor = self._noise.next()
        duration_s = factor * self._step_s(ends, chunks)
        stop_at_s = self._stop_instant(plan, step, duration_s)
        dropped: tuple[str, ...] = ()
        layer = None
        if stop_at_s is not None:
            self.num_stops += 1
            dropped = self._undo_offline(decode, chunks)
            ends = [end for t, end in zip(decode, ends, strict=True) if t.request.is_online]
            decode = [track for track in decode if track.request.is_online]
            chunks = [work for work in chunks if work.request.is_online]
            done = (stop_at_s - step.started_at_s) / duration_s
            layer = round(done * self.shape.limits.num_layers)
            rest_s = factor * self._step_s(ends, chunks) * (1.0 - done)
            duration_s = stop_at_s - step.started_at_s + rest_s
        self.now_s += duration_s
        self.busy_s += duration_s
        num_chunks_online = [work.request.request_class for work in chunks].count(ONLINE)
        online = len(decode) if dropped else step.num_online_requests - num_chunks_online
        offline = len(decode) - online
        for work in chunks:
            if work.request.is_online:
                online += work.num_tokens
            else:
                offline += work.num_tokens
        outcome = Outcome(plan.step_id, duration_s, online, offline, layer, dropped)
        return Launched(plan, decode, ends, chunks, outcome, self.now_s)

    def _step_s(self, ends: list[int], chunks: list[ChunkWork]) -> float:
        if not ends and not chunks:
            return 0.0
        sizes = [(work.num_tokens, work.before_tokens) for work in chunks]
        return self._times.step_s(load_of(ends, chunks), sizes)

    def _stop_instant(self, plan: StepPlan, step: RunningStep, duration_s: float) -> float | None:
        if self._on_arrival is None:
            return None
        end_s = step.started_at_s + duration_s
        earlier = 0
        for at_s, request in self._arrivals_until(end_s):
            if not request.is_online:
                continue
            arrival = Arrival(request.request_class, request.prompt_tokens, at_s, earlier)
            earlier += request.prompt_tokens
            if self._on_arrival(arrival, step) is Decision.CONTINUE:
                continue
            if plan.safepoints.mode is SafepointMode.NONE:
                continue
            # A shape of one layer does not say how close two safepoints can be.
            layers = self.shape.limits.num_layers
            layers = layers if layers > 1 else SMOOTH
            every, groups = safepoint_groups(
                plan.safepoints.interval_s, step.predicted_s, layers, self.shape.most_groups
            )
            word_s = at_s - step.started_at_s
            layer = stopped_before_layer(word_s, duration_s, layers, every, groups)
            return step.started_at_s + layer * duration_s / layers if layer < layers else None
        return None

    def _arrivals_until(self, end_s: float) -> Iterator[tuple[float, Request]]:
        for index in range(self._next, len(self._future)):
            at_s, _, request = self._future[index]
            if at_s >= end_s:
                return
            yield at_s, request

    def _undo_offline(self, decode: list[Track], chunks: list[ChunkWork]) -> tuple[str, ...]:
        for work in chunks:
            if not work.request.is_online:
                self._undo(work.request, work.before_tokens, work.before_phase)
        for track in decode:
            if not track.request.is_online:
                self._undo(track.request, track.request.computed_tokens - 1, DECODE)
        requests = [*(track.request for track in decode), *(work.request for work in chunks)]
        return tuple([request.rid for request in requests if not request.is_online])

    def _undo(self, request: Request, tokens: int, phase: Phase) -> None:
        request.computed_tokens = tokens
        request.phase = phase
        request.in_flight = False
        self.pool.resize(request, tokens)
        self._kv.forget_uncomputed(request)

    def _deliver(self, launched: Launched) -> float:
        """Count the step's tokens and hand them out; returns the longest gap it ended online."""
        at_s = launched.ended_at_s
        step_id = launched.plan.step_id
        gap_s = 0.0
        fresh = again = 0
        done: list[Track] = []
        for track, end in zip(launched.decode, launched.ends, strict=True):
            if track.over or step_id <= track.void_until:
                continue  # it ended, or lost its KV, while this step was under way
            request = track.request
            times = track.times
            if track.newest_step == step_id:
                request.in_flight = False
            if end <= track.seen:
                again += 1
            else:
                track.seen = end
                if request.request_class:  # not online
                    fresh += 1
            if not request.request_class and times and at_s - times[-1] > gap_s:
                gap_s = at_s - times[-1]
            times.append(at_s)
            request.output_tokens += 1
            if request.output_tokens >= track.answer_tokens:
                done.append(track)
        self.offline_tokens += fresh
        self.recomputed_tokens += again
        for work in launched.chunks:
            gap_s = max(gap_s, self._deliver_chunk(work, launched, done))
        for track in done:
            self._finish(track)
        return gap_s

    def _deliver_chunk(self, work: ChunkWork, launched: Launched, done: list[Track]) -> float:
        request, track, at_s = work.request, work.track, launched.ended_at_s
        if track.over or launched.plan.step_id <= track.void_until:
            return 0.0
        if track.newest_step == launched.plan.step_id:
            request.in_flight = False
        end = work.before_tokens + work.num_tokens
        fresh = max(0, end - max(track.seen, work.before_tokens))
        track.seen = max(track.seen, end)
        self.recomputed_tokens += work.num_tokens - fresh
        if not request.is_online:
            self.offline_tokens += fresh
            self.offline_prompt_tokens += fresh
        self.pool.prefixes.computed(request)
        if not work.delivers:
            return 0.0
        gap_s = at_s - track.times[-1] if request.is_online and track.times else 0.0
        if not track.times:
            request.first_token_at_s = at_s
        track.times.append(at_s)
        request.output_tokens += 1
        if request.output_tokens >= track.answer_tokens:
            done.append(track)
        return gap_s

    def _finish(self, track: Track) -> None:
        request = track.request
        track.over = True
        self.roster.finish(request.rid)
        self.finished[request.rid] = request
        if self._predictor is not None:
            self._predictor.learn(Asked.about(request), request.output_tokens)
        self._kv.release(request)
        if self._on_finish is not None:
            self._on_finish(request)
