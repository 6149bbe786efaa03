"""Carry a plan out with SGLang's own parts: the only module that moves requests between states.

Order, as the plan says: retracts, restores, checkpoints, then one batch over the chosen requests.
Chunks come first in the batch and decoding requests after them, which is SGLang's mixed layout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sglang.srt.managers.schedule_batch import ScheduleBatch
from sglang.srt.managers.scheduler_components.metrics_reporter import PrefillStats
from sglang.srt.observability.metrics_collector import QueueCount
from sglang.srt.observability.req_time_stats import set_time_batch

from engine_adapter.scheduling.plan import Chunk, StepPlan
from engine_adapter.scheduling.request import Phase, Request
from engine_adapter.sglang.counters import Counters
from engine_adapter.sglang.decode_batch import DecodeBatchBuilder, mix, tell_penalties
from engine_adapter.sglang.kv import Checkpointer, Restorer
from engine_adapter.sglang.live_requests import ChunkSpan, LaunchedStep, LiveRequest, LiveRequests
from engine_adapter.sglang.prefix_tree import PrefixTree
from engine_adapter.sglang.versions.installed import seam

if TYPE_CHECKING:
    from sglang.srt.managers.scheduler import Scheduler

DECODE = Phase.DECODE
# A look into the prefix tree takes some 50 us, and the next step waits for it.
HITS_AT_ONCE = 8


class Actuator:
    """Brings one engine from the snapshot's state to the plan's.

    Attributes:
        decode_requests: Builds decode batches.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        requests: LiveRequests,
        tree: PrefixTree,
        checkpointer: Checkpointer,
        restorer: Restorer,
        counters: Counters,
        finish_pending: Callable[[], None],
    ) -> None:
        """Move requests of this scheduler.

        Args:
            scheduler: SGLang's.
            requests: The table of live requests.
            tree: The prefix tree.
            checkpointer: Copies of KV on the host.
            restorer: Copies back from there.
            counters: Counts what is done.
            finish_pending: Processes the results of launched steps now.
        """
        self._scheduler = scheduler
        self._requests = requests
        self._tree = tree
        self._checkpointer = checkpointer
        self._restorer = restorer
        self._counters = counters
        self._finish_pending = finish_pending
        self.decode_requests = DecodeBatchBuilder(scheduler)

    def apply(self, plan: StepPlan) -> LaunchedStep | None:
        """Bring the engine from the snapshot's state to the plan's; None if nothing is computed."""
        if plan.retracts:
            self.retract(plan.retracts)
        if plan.restores:
            self._restorer.restore(plan.restores, self._requests)
        if plan.checkpoints:
            self._checkpointer.checkpoint(plan.checkpoints, self._requests)
        return self._compose(plan)

    def retract(self, rids: tuple[str, ...]) -> None:
        """Take slot and device pages away from these requests and queue them again.

        A request whose result is still on its way is retracted after that result: its last token
        would be lost otherwise.
        """
        if any((live := self._requests.get(rid)) and live.pending for rid in rids):
            self._finish_pending()
        with freed_at_once(self._scheduler.token_to_kv_pool_allocator):
            for rid in rids:
                live = self._requests.get(rid)
                if live is not None and live.request.holds_slot and not live.req.finished():
                    self._retract(live)
        self.decode_requests.forget()

    def _retract(self, live: LiveRequest) -> None:
        req = live.req
        if req.input_token_logprobs is not None:
            # Half of the prompt's log-probabilities, which SGLang forgets here: all of it is
            # computed again, since a request that went on from its KV would have the other half.
            self._checkpointer.forget(live)
        elif live.request.phase is not Phase.RESTORING:
            self._checkpointer.park_tail(live)
        live.had_tokens = max(live.had_tokens, seam.kv_len(req))
        seam.retract(self._scheduler, req)
        self._requests.retract(live)
        # A request whose KV is lost is prefilled with all it has said; the last chunk goes on.
        live.request.fill_tokens = len(req.origin_input_ids) + len(req.output_ids)
        self._scheduler.waiting_queue.append(req)
        req.time_stats.set_wait_queue_entry_time()
        self._counters.retracts += 1

    def forget(self, live: LiveRequest) -> None:
        """A request is over: release what the host still holds of it."""
        if self._requests.get(live.rid) is live:
            self._checkpointer.forget(live)
            self._requests.forget(live.rid)

    def settle(self, step: LaunchedStep) -> None:
        """Book what the last launched step computed, before anything new is composed.

        The KV of a chunk that is not the last one goes into the prefix tree, as SGLang does with
        its single chunked request.
        """
        for i, span in enumerate(step.chunks):
            req = span.live.req
            if i in step.dropped or not span.middle or not seam.holds_kv(req) or req.finished():
                continue
            if seam.extend_end(req) > seam.prefix_len(req):
                self._scheduler.stash_chunked_request(req)

    def _compose(self, plan: StepPlan) -> LaunchedStep | None:
        """The step with its batch; what raises on the way is kept in it, and all of it undone."""
        batch: Any = None
        failure: Exception | None = None
        chunks: list[ChunkSpan] = []
        decodes: list[LiveRequest] = []
        ends: list[int] = []
        try:
            self._take_chunks(plan, chunks)
            decodes, ends = self._take_decodes(plan)
            if decodes:
                batch = self.decode_requests.prepare([live.req for live in decodes])
            if chunks:
                prefill = self._prefill_batch(chunks)
                if decodes:
                    mix(prefill, batch)
                batch = prefill
        except Exception as error:  # noqa: BLE001 - whose it is will be seen (`confine`)
            failure = error
        if batch is None and failure is None:
            return None
        step = LaunchedStep(plan, batch, chunks, decodes, ends, failure=failure)
        if failure is not None:
            self.undo(step, list(range(len(step.lives))))
            self.decode_requests.forget()
        return step

    def _take_chunks(self, plan: StepPlan, chunks: list[ChunkSpan]) -> None:
        grown: list[Request] = []
        for chunk in plan.prefill:
            if (span := self._take_chunk(chunk, grown)) is not None:
                chunks.append(span)  # noqa: PERF401 - if the next one raises, these are undone
        for request in grown:  # only now: what is expected of one must not change under its plan
            self._expect_hits_again(request)

    def _take_decodes(self, plan: StepPlan) -> tuple[list[LiveRequest], list[int]]:
        """The decoding requests not ended since the snapshot, and their KV lengths with this step.

        Only a retract processes results between snapshot and step, so only then a request can have
        ended.
        """
        # Hundreds of requests in a full step: few passes, each without a branch.
        by_id, page_size = self._requests.by_id, self._scheduler.page_size
        if plan.retracts:
            found = [by_id[rid] for rid in plan.decode if rid in by_id]
            lives = [
                live
                for live in found
                if live.req.finished_reason is None and live.request.phase is DECODE
            ]
        else:
            lives = [by_id[rid] for rid in plan.decode if rid in by_id]
        ends = [length + 1 for length in seam.kv_lens([live.req for live in lives])]
        pages = ends if page_size == 1 else [-(-end // page_size) for end in ends]
        for live, end, num_pages in zip(lives, ends, pages, strict=True):
            request = live.request
            request.computed_tokens = end
            request.device_pages = num_pages
        return lives, ends

    def _take_chunk(self, chunk: Chunk, grown: list[Request]) -> ChunkSpan | None:
        """Reserve the next prompt tokens of a request; a waiting request gets slot and prefix here.

        ``grown`` is told of requests whose prefix hit is longer than the plan knew.
        """
        live = self._requests.get(chunk.rid)
        if live is None or live.req.finished() or live.req.to_finish is not None:
            # SGLang ends an aborted prompt only with its last chunk; here it is reaped before.
            return None
        req, request = live.req, live.request
        fresh, expected = not request.holds_slot, request.cached_tokens
        # Pages were promised up to here; a prefix hit the plan did not know of locks pages too.
        promised_end = request.start_tokens + chunk.num_tokens
        if fresh:
            req.init_next_round_input(self._scheduler.tree_cache)
            request.cached_tokens = seam.prefix_len(req)
            if request.cached_tokens > expected:
                grown.append(request)
            if request.cached_tokens >= promised_end:
                return None  # more is cached than the plan meant to compute: plan it again
            seam.lock(self._scheduler.tree_cache, req)
            self._requests.start(live, Phase.PREFILL)
            # It is computed anew, so what the host holds of it is over: a tail page kept there
            # would stand before pages checkpointed later, half filled.
            self._checkpointer.forget(live)
        else:
            req.init_next_round_input()
        start = seam.prefix_len(req)
        end = min(start + chunk.num_tokens, promised_end, request.fill_tokens)
        span = ChunkSpan(
            live,
            start,
            end,
            fresh=fresh,
            middle=end < request.fill_tokens,
            cached_tokens=req.cached_tokens,
            already_computed=req.already_computed,
            breakdown_computed=req._cache_breakdown_computed,
        )
        request.computed_tokens = end
        request.device_pages = -(-end // self._scheduler.page_size)
        seam.set_extend(req, start, end)
        if span.middle:
            req.inflight_middle_chunks += 1
        else:
            request.phase = Phase.DECODE
        return span

    def _prefill_batch(self, chunks: list[ChunkSpan]) -> Any:
        reqs = [span.live.req for span in chunks]
        fresh = {id(span.live.req) for span in chunks if span.fresh}
        if fresh:
            self._scheduler.waiting_queue = [
                r for r in self._scheduler.waiting_queue if id(r) not in fresh
            ]
            set_time_batch([r for r in reqs if id(r) in fresh], "set_forward_entry_time")
        batch = ScheduleBatch.init_new(
            reqs,
            self._scheduler.req_to_token_pool,
            self._scheduler.token_to_kv_pool_allocator,
            self._scheduler.tree_cache,
            self._scheduler.model_config,
            self._scheduler.enable_overlap,
            self._scheduler.spec_algorithm,
        )
        batch.prepare_for_extend()
        tell_penalties(batch)  # of what requests that are computed again have said
        batch.prefill_stats = PrefillStats(
            log_input_tokens=sum(span.end - span.start for span in chunks),
            log_hit_tokens=sum(span.start for span in chunks if span.fresh),
            new_token_ratio=self._scheduler.new_token_ratio_tracker.current,
            num_running_reqs=QueueCount.from_reqs(self._scheduler.running_batch.reqs),
            num_new_seqs=len(chunks),
        )
        batch.decoding_reqs = None
        return batch

    def _expect_hits_again(self, request: Request) -> None:
        """A request's prefix hit has grown since it came: those behind it may share the prefix.

        Requests of a batch come together, often before the first of them is computed. Without this
        each would lose its first chunk to a plan that counts on computing the prefix once more.
        """
        for other in self._requests.roster.waiting_like(request, HITS_AT_ONCE):
            other.cached_tokens = self._tree.hit(self._requests.by_id[other.rid].req)

    # --- Undo what a step reserved for a request whose work was thrown away.
    #
    # The pass wrote garbage, or nothing, into the slots ``[start, end)`` of the request. Everything
    # before ``start`` is intact, so the request keeps it and its slot, and the next step computes
    # the same tokens again. Only a request that got its slot in this very step goes back to the
    # waiting queue.
    #
    # Kernels of a stopped pass may still be running on CUDA: slots given back here are written
    # again only by later work on the same stream; copies on other streams wait for an event.

    def undo(self, step: LaunchedStep, positions: list[int]) -> None:
        """Undo the requests at these batch positions of ``step``.

        A step that raised while it was composed may have come to any point: what was reserved is
        read off the requests.
        """
        with freed_at_once(self._scheduler.token_to_kv_pool_allocator):
            self._undo(step, positions)

    def _undo(self, step: LaunchedStep, positions: list[int]) -> None:
        s, requeued = self._scheduler, []
        for i in positions:
            span = step.spans[i]
            step.dropped.add(i)
            if step.is_launched:
                span.live.processed()  # no result will come for it
            req = span.live.req
            if not seam.holds_kv(req) and (step.is_launched or not span.fresh):
                continue  # finished by an older result in between
            is_counted = seam.kv_len(req) > span.start
            self._free_tail(req, span.start)
            if isinstance(span, ChunkSpan):
                _undo_chunk(req, span, is_counted=is_counted)
                if span.fresh:
                    seam.undo_start(self._scheduler, req)
                    phase = Phase.RETRACTED if req.retracted_stain else Phase.WAITING
                    self._requests.undo_start(span.live, phase)
                    span.live.request.cached_tokens = span.start
                    requeued.append(req)
                    continue
                span.live.request.phase = Phase.PREFILL
            else:
                req.decode_batch_idx -= is_counted
            span.live.request.computed_tokens = span.start
            span.live.request.device_pages = -(-span.start // s.page_size)
        if requeued and not step.is_launched:  # some may not have left the queue yet
            again = {id(req) for req in requeued}
            s.waiting_queue = [req for req in s.waiting_queue if id(req) not in again]
        s.waiting_queue[:0] = requeued

    def _free_tail(self, req: Any, start: int) -> None:
        """Give back the KV slots from ``start`` on; a page shared with older tokens stays."""
        if not seam.holds_kv(req):
            return
        page, end = self._scheduler.page_size, seam.allocated_len(req)
        first_free = -(-start // page) * page
        if first_free < end:
            table = self._scheduler.req_to_token_pool.req_to_token
            slots = table[seam.slot(req), first_free:end]
            self._scheduler.token_to_kv_pool_allocator.free(slots.long())
        seam.set_kv_len(req, start)


@contextmanager
def freed_at_once(allocator: Any) -> Iterator[None]:
    """KV slots given back in the block are free at its end, all of them in one operation.

    Each alone would copy the whole list of free slots, and wait for the device where pages have
    more than one token.
    """
    if seam.gathers_frees(allocator):  # somebody gathers already, and would lose what is here
        yield
        return
    allocator.free_group_begin()
    try:
        yield
    finally:
        allocator.free_group_end()


def _undo_chunk(req: Any, span: ChunkSpan, *, is_counted: bool) -> None:
    if span.middle:
        req.inflight_middle_chunks -= 1
    # "nothing new since the last cached chunk": SGLang's own form of a parked chunk
    seam.set_extend(req, span.start, span.start)
    req.extend_batch_idx -= is_counted
    req.cached_tokens = span.cached_tokens
    req.already_computed = span.already_computed
    req._cache_breakdown_computed = span.breakdown_computed
