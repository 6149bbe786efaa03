"""SGLang's own priority scheduling, as version 0.5.16 has it (``srt/managers``, see each section).

The scheduler that coserve is held against, for the simulator; the benchmark runs the real one.

``sglang_priority``: ``--enable-priority-scheduling``, preemption threshold 0,
``--retraction-policy priority``. ``sglang_no_preemption``: the same with
``--disable-priority-preemption``. The chunk is the engine's (``--chunked-prefill-size``), and so is
whether prompts share steps with decoding requests (``--enable-mixed-chunk``).

- Prompts go first (``scheduler.py``, ``get_new_batch_prefill``): the one that was cut, then by
  class and arrival. Without mixing everyone who decodes waits until none can begin.
- A request begins if its prompt and its longest answer fit beside what those that run are expected
  to need: ``new_token_ratio`` of what is left of their longest answers (``schedule_policy.py``,
  ``add_one_req``). The ratio falls step by step, and is estimated again when memory runs out.
- Who has ended holds its slot until the next step that decodes (``update_running_batch``).
- A request without a *slot* takes that of running requests of a lower class, the newest first
  (``preempt_to_schedule``). One that lacks memory alone waits. Of those victims the expected rest
  counts and not what they hold.
- Out of memory in a decode step, the lowest class gives way, the shortest answer first
  (``schedule_batch.py``, ``retract_decode``).

Who gives way is computed again, but for what the prefix tree keeps. No step is stopped, and no
latency model is asked. Where a result on its way forbids it, a victim rests for a step first.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from engine_adapter.scheduling.builder import UNBOUNDED_S, PlanBuilder
from engine_adapter.scheduling.latency import LatencyModel
from engine_adapter.scheduling.plan import StepPlan
from engine_adapter.scheduling.policies.base import PolicyBase
from engine_adapter.scheduling.policies.settings import PolicySettings
from engine_adapter.scheduling.ranked import Ranked
from engine_adapter.scheduling.request import Phase, Request
from engine_adapter.scheduling.snapshot import Snapshot

# Defaults of SGLang's environment variables of nearly these names.
FIRST_RATIO = 0.7
LAST_RATIO = FIRST_RATIO * 0.14
RATIO_STEP = (FIRST_RATIO - LAST_RATIO) / 600
TOKENS_AFTER_RETRACT = 20
MOST_NEW_TOKENS = 4096

BEHIND = 1e-6
"""Between two places in the queue; requests that arrive are numbered one by one."""


def left_tokens(request: Request) -> int:
    """What is left of its longest answer, as far as SGLang looks ahead."""
    return min(max(0, request.max_output_tokens - request.output_tokens), MOST_NEW_TOKENS)


class SglangPriority(PolicyBase):
    """Stock SGLang with priorities and preemption."""

    name = "sglang_priority"
    preempts = True

    def __init__(self, model: LatencyModel, settings: PolicySettings | None = None) -> None:
        """Begin with SGLang's first ratio."""
        super().__init__(model, settings)
        self.ratio = FIRST_RATIO
        self._is_full = False
        self._num_running = 0
        self._num_ended = 0
        self._offline: tuple[int, list[Request]] = (-1, [])
        # Who gave way, and where it has queued since; all others stand where they arrived.
        self._queued_again: dict[str, float] = {}

    def rank(self, request: Request) -> tuple[float, ...]:
        """Class, then entry into the queue: who gave way has entered it anew."""
        return (request.request_class, self._queued_again.get(request.rid, request.sequence))

    def plan(self, snapshot: Snapshot) -> StepPlan:
        """Prompts, with or without those that decode; without prompts a token for everyone."""
        builder = self._builder(snapshot)
        online, offline = snapshot.online_ready, snapshot.offline_ready
        mixes = snapshot.limits.can_mix and online.can_mix and offline.can_mix
        if not snapshot.running:
            self.ratio = FIRST_RATIO
        self._num_ended += max(0, self._num_running - len(snapshot.running))
        if self.preempts or not snapshot.running:
            self._is_full = False
        pages = online.pages.total + offline.pages.total if mixes else 0
        if pages <= builder.pages_left:
            held = min(self._num_ended, builder.slots_left)
            builder.pages_left -= pages
            builder.slots_left -= held
            self._admit(builder, len(online) + len(offline) if mixes else 0)
            builder.pages_left += pages
            builder.slots_left += held
        if (mixes or not builder.has_chunks) and self._num_ended:
            self._num_ended = 0
            self._is_full = False
        if not builder.has_chunks:
            self._keep_memory(builder)
        if mixes or not builder.has_chunks:
            for ready in (online, offline):
                builder.decode_run(builder.untaken(ready), UNBOUNDED_S)
        if builder.is_empty or any(r.phase is Phase.RESTORING for r in snapshot.running):
            Ranked(builder, self.rank).go_on(self._waiting(snapshot))
        self._queue_again(builder)
        begun = snapshot.resources.free_slots - builder.slots_left
        self._num_running = len(snapshot.running) + begun
        return builder.build(UNBOUNDED_S)

    def _waiting(self, snapshot: Snapshot) -> Iterator[Request]:
        version, requests = self._offline
        if version != snapshot.offline_waiting_version:
            requests = sorted(snapshot.offline_waiting, key=self.rank)
            self._offline = (snapshot.offline_waiting_version, requests)
        return chain(sorted(snapshot.online_waiting, key=self.rank), requests)

    def _queue_again(self, builder: PlanBuilder) -> None:
        """Who gives way in this step stands behind everybody who has arrived by now."""
        if not builder.retracted:
            return
        snapshot = builder.snapshot
        live = chain(snapshot.running, snapshot.online_waiting, snapshot.offline_waiting)
        places = {request.rid: self.rank(request)[-1] for request in live}
        last = max(places.values())
        self._queued_again = {rid: at for rid, at in self._queued_again.items() if rid in places}
        for number, rid in enumerate(builder.retracted, 1):
            self._queued_again[rid] = last + number * BEHIND

    # --- get_new_batch_prefill and PrefillAdder -------------------------------------------------

    def _admit(self, builder: PlanBuilder, num_beside: int) -> None:
        snapshot, page_tokens = builder.snapshot, builder.page_tokens
        running = [*snapshot.online_ready.requests, *snapshot.offline_ready.requests]
        cut = sorted((r for r in snapshot.running if r.phase is Phase.PREFILL), key=self.rank)
        if not cut and (self._is_full or not (snapshot.online_waiting or snapshot.offline_waiting)):
            return
        builder.chunk_left = max(0, builder.chunk_left - num_beside)
        promised = self.ratio * sum(map(left_tokens, running))
        for request in cut:
            if builder.chunk(request, UNBOUNDED_S) == request.remaining_tokens:
                promised += left_tokens(request) + page_tokens
        is_full = self._is_full
        for request in self._waiting(snapshot):
            left = builder.pages_left * page_tokens - promised
            is_full = is_full or builder.slots_left <= 0
            if is_full or not builder.has_slot_for(
                request
            ):  # of those kept for chat there may be some
                freed = self._preempt(builder, running, request, left) if self.preempts else -1.0
                if freed < 0.0 or not builder.has_slot_for(request):
                    break
                promised -= freed
                left = builder.pages_left * page_tokens - promised
            alone = builder.is_empty and not snapshot.running
            if request.fill_tokens + left_tokens(request) + page_tokens >= left and not alone:
                is_full = True
                break
            taken = builder.chunk(request, UNBOUNDED_S)
            promised += page_tokens + (
                left_tokens(request) if taken == request.remaining_tokens else 0
            )
            if taken < request.remaining_tokens or builder.chunk_left <= 0:
                break
        self._is_full = is_full and not self.preempts

    def _preempt(
        self, builder: PlanBuilder, running: list[Request], request: Request, left: float
    ) -> float:
        """Take slots for the request; what its victims still needed, -1 if there are none."""
        lacks = request.remaining_tokens + min(request.max_output_tokens, MOST_NEW_TOKENS) - left
        victims: list[Request] = []
        at_once = builder.snapshot.limits.retracts_in_flight
        newest = sorted(running, key=self.rank, reverse=True)
        if not at_once:
            newest.sort(key=lambda victim: victim.in_flight)
        for victim in newest:
            if victim.rid in builder.taken or victim.request_class <= request.request_class:
                continue
            victims.append(victim)
            lacks -= self.ratio * left_tokens(victim)
            if lacks <= 0.0:
                break
        if not victims or lacks > 0.0:
            return -1.0
        for victim in victims:
            self._release(builder, victim)
        return self.ratio * sum(map(left_tokens, victims))

    def _release(self, builder: PlanBuilder, request: Request) -> None:
        may = builder.snapshot.limits.retracts_in_flight or not request.in_flight
        if may and not request.host_pages_pending:
            builder.retract(request)
        else:
            builder.rest(request)

    # --- update_running_batch and retract_decode ------------------------------------------------

    def _keep_memory(self, builder: PlanBuilder) -> None:
        """Who decodes has a page for its next token, or the last of them give way."""
        snapshot = builder.snapshot
        sides = (builder.untaken(snapshot.online_ready), builder.untaken(snapshot.offline_ready))
        needed = sum(side.pages.total for side in sides)
        if needed <= builder.pages_left:
            self.ratio = max(LAST_RATIO, self.ratio - RATIO_STEP)
            return
        kept = sorted(
            [*sides[0].requests, *sides[1].requests],
            key=lambda request: (
                request.request_class,
                -request.output_tokens,
                request.prompt_tokens,
            ),
        )
        while len(kept) > 1 and needed > builder.pages_left:
            victim = kept.pop()
            needed -= builder.decode_pages(victim)
            self._release(builder, victim)
        outputs = sum(request.output_tokens for request in kept) + TOKENS_AFTER_RETRACT * len(kept)
        bounds = sum(request.max_output_tokens for request in kept)
        self.ratio = min(1.0, outputs / (bounds + 1))


class SglangNoPreemption(SglangPriority):
    """Stock SGLang with priorities, and nobody gives way to another's priority."""

    name = "sglang_no_preemption"
    preempts = False
