"""Carry a plan out with SGLang's own parts: the only module that moves requests between states.

Order, as the plan says: retracts, restores, checkpoints, then one batch over the chosen requests.
Chunks come first in the batch and decoding requests after them, which is SGLang's mixed layout.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from sglang.srt.managers.schedule_batch import ScheduleBatch, release_req
from sglang.srt.managers.scheduler_components.metrics_reporter import PrefillStats
from sglang.srt.observability.metrics_collector import QueueCount
from sglang.srt.observability.req_time_stats import set_time_batch
from sglang.srt.sampling.penaltylib import (
    BatchedFrequencyPenalizer,
    BatchedMinNewTokensPenalizer,
    BatchedPresencePenalizer,
    BatchedRepetitionPenalizer,
)
from sglang.srt.sampling.sampling_batch_info import SamplingBatchInfo

from engine_adapter.scheduling.plan import Chunk, StepPlan
from engine_adapter.scheduling.request import Phase, Request
from engine_adapter.sglang.live_requests import ChunkSpan, LaunchedStep, LiveRequest

if TYPE_CHECKING:
    from engine_adapter.sglang.queueing import QueueingScheduler

# --- Decode batches built from requests, so that any subset of requests may run in any step.
#
# SGLang splits and merges batch objects and keeps the truth in their tensors. Here the truth is in
# the requests (``kv_committed_len`` and the request slot), and the batch is rebuilt whenever the
# set of requests changes: parked requests cost nothing, and a resumed request needs no path of its
# own. A batch whose requests did not change is used again.


class DecodeBatchBuilder:
    """Builds decode batches and keeps the last one."""

    def __init__(self, scheduler: QueueingScheduler) -> None:
        """Build batches for this scheduler."""
        self._scheduler = scheduler
        self._last: Any = None

    def forget(self) -> None:
        """Do not use the last batch again: its lengths or requests no longer hold."""
        self._last = None

    def prepare(self, reqs: list[Any]) -> Any:
        """A batch over exactly these requests, with KV slots for one more token each.

        Args:
            reqs: Requests whose prefill is complete, in batch order; none may be finished.

        Returns:
            A ScheduleBatch in decode mode, ready to run or to be mixed into a prefill batch.
        """
        batch = self._last
        if batch is None or batch.reqs != reqs or _has_penalties(batch):
            batch = self._build(reqs)
        _prepare(batch)
        self._last = batch
        return batch

    def _build(self, reqs: list[Any]) -> Any:
        s = self._scheduler
        batch = ScheduleBatch.init_new(
            reqs=list(reqs),
            req_to_token_pool=s.req_to_token_pool,
            token_to_kv_pool_allocator=s.token_to_kv_pool_allocator,
            tree_cache=s.tree_cache,
            model_config=s.model_config,
            enable_overlap=s.enable_overlap,
            spec_algorithm=s.spec_algorithm,
        )
        slots = [req.req_pool_idx for req in reqs]
        # KV written or being written: also right while the last token is still on its way.
        lengths = [req.kv_committed_len for req in reqs]
        batch.req_pool_indices_cpu = torch.tensor(slots, dtype=torch.int64)
        batch.req_pool_indices = batch.req_pool_indices_cpu.to(s.device, non_blocking=True)
        batch.seq_lens_cpu = torch.tensor(lengths, dtype=torch.int64)
        batch.seq_lens = batch.seq_lens_cpu.to(s.device, non_blocking=True)
        batch.orig_seq_lens = batch.seq_lens.to(torch.int32)
        batch.seq_lens_sum = sum(lengths)
        batch.input_ids = None  # gathered from the relay buffer by request slot
        batch.multimodal_inputs = [req.multimodal_inputs for req in reqs]
        if batch.return_logprob:
            batch.top_logprobs_nums = [req.logprob.top_logprobs_num for req in reqs]
            batch.token_ids_logprobs = [req.logprob.token_ids_logprob for req in reqs]
        batch.sampling_info = SamplingBatchInfo.from_schedule_batch(
            batch, s.model_config.vocab_size
        )
        return batch


def mix(batch: Any, decode_batch: Any) -> None:
    """Add decoding requests to a prefill batch as one-token chunks.

    SGLang derives the context of these requests from the length of their output, which is right
    only for requests that ran in the previous step; a request that was parked has no token on its
    way.
    """
    num_chunks = len(batch.reqs)
    batch.mix_with_running(decode_batch)
    batch.decoding_reqs = decode_batch.reqs
    batch.prefix_lens[num_chunks:] = [req.kv_committed_len - 1 for req in decode_batch.reqs]


def _prepare(batch: Any) -> None:
    """Let SGLang give every request a KV slot; what it has said so far is told the penalties here.

    SGLang adds a request's newest processed token in every step, which with the overlap loop is the
    one before the newest: a request that skipped a step would be one token ahead of one that did
    not.
    """
    orchestrator = batch.sampling_info.penalizer_orchestrator
    required, orchestrator.is_required = bool(orchestrator.is_required), False
    try:
        batch.prepare_for_decode()
    finally:
        orchestrator.is_required = required
    tell_penalties(batch)


def _has_penalties(batch: Any) -> bool:
    """Such a batch is never used again: its penalties are told from the start in every step."""
    return bool(batch.sampling_info.penalizer_orchestrator.is_required)


def tell_penalties(batch: Any) -> None:
    """Tell fresh penalizers what the requests have said, whatever steps they ran in.

    As in SGLang that is without the token on its way where there is an overlap loop. A prompt has
    said nothing, unless it is that of a request that is computed again.
    """
    orchestrator = batch.sampling_info.penalizer_orchestrator
    if not orchestrator.is_required:
        return
    prepared = [p for p in orchestrator.penalizers.values() if p.is_prepared()]
    for i, req in enumerate(batch.reqs):
        made = max(0, req.kv_committed_len - len(req.origin_input_ids))
        known = max(0, made - 1) if batch.enable_overlap else made
        tokens = torch.tensor(list(req.output_ids[:known]), dtype=torch.int64, device=batch.device)
        for penalizer in prepared:
            if isinstance(penalizer, BatchedMinNewTokensPenalizer):
                penalizer.len_output_tokens[i] += made  # a count: no token has to be known
            elif known:
                _REPLAY[type(penalizer)](penalizer, i, tokens)


def _replay_frequency(penalizer: Any, i: int, tokens: torch.Tensor) -> None:
    added = penalizer.frequency_penalties[i].expand(tokens.shape[0])
    penalizer.cumulated_frequency_penalties[i].scatter_add_(0, tokens, added)


def _replay_presence(penalizer: Any, i: int, tokens: torch.Tensor) -> None:
    penalizer.cumulated_presence_penalties[i, tokens] = penalizer.presence_penalties[i]


def _replay_repetition(penalizer: Any, i: int, tokens: torch.Tensor) -> None:
    penalizer.cumulated_repetition_penalties[i, tokens] = penalizer.repetition_penalties[i]


_REPLAY = {
    BatchedFrequencyPenalizer: _replay_frequency,
    BatchedPresencePenalizer: _replay_presence,
    BatchedRepetitionPenalizer: _replay_repetition,
}


# --- From the snapshot's state to the plan's.

DECODE = Phase.DECODE


def actuate(scheduler: QueueingScheduler, plan: StepPlan) -> LaunchedStep | None:
    """Bring the engine from the snapshot's state to the plan's; None if nothing is computed."""
    if plan.retracts:
        retract_requests(scheduler, plan.retracts)
    if plan.restores:
        scheduler.runtime.restorer.restore(plan.restores, scheduler.runtime.requests)
    if plan.checkpoints:
        scheduler.runtime.checkpointer.checkpoint(plan.checkpoints, scheduler.runtime.requests)
    return _compose(scheduler, plan)


def retract_requests(scheduler: QueueingScheduler, rids: tuple[str, ...]) -> None:
    """Take slot and device pages away from these requests and queue them again.

    A request whose result is still on its way is retracted after that result: its last token would
    be lost otherwise.
    """
    if any((live := scheduler.runtime.requests.get(rid)) and live.pending for rid in rids):
        scheduler.process_pending_results()
    for rid in rids:
        live = scheduler.runtime.requests.get(rid)
        if live is not None and live.request.holds_slot and not live.req.finished():
            _retract(scheduler, live)
    scheduler.runtime.decode_requests.forget()


def _retract(scheduler: QueueingScheduler, live: LiveRequest) -> None:
    req = live.req
    if req.input_token_logprobs is not None:
        # Half of the prompt's log-probabilities, which SGLang forgets here: all of it is computed
        # again, since a request that went on from its KV would have the other half alone.
        scheduler.runtime.checkpointer.forget(live)
    elif live.request.phase is not Phase.RESTORING:
        scheduler.runtime.checkpointer.park_tail(live)
    live.had_tokens = max(live.had_tokens, req.kv_committed_len)
    release_req(
        req=req,
        remaing_req_count=0,
        server_args=scheduler.server_args,
        req_to_token_pool=scheduler.req_to_token_pool,
        token_to_kv_pool_allocator=scheduler.token_to_kv_pool_allocator,
        tree_cache=scheduler.tree_cache,
        hisparse_coordinator=None,
    )
    scheduler.runtime.requests.retract(live)
    # A request whose KV is lost is prefilled with everything it has said; the last chunk goes on.
    live.request.fill_tokens = len(req.origin_input_ids) + len(req.output_ids)
    scheduler.waiting_queue.append(req)
    req.time_stats.set_wait_queue_entry_time()
    scheduler.runtime.counters.retracts += 1


def settle(scheduler: QueueingScheduler, step: LaunchedStep) -> None:
    """Book what the last launched step computed, before anything new is composed.

    The KV of a chunk that is not the last one goes into the prefix tree, as SGLang does with its
    single chunked request.
    """
    for i, span in enumerate(step.chunks):
        req = span.live.req
        if i in step.dropped or not span.middle or req.kv is None or req.finished():
            continue
        if req.extend_range.end > len(req.prefix_indices):
            scheduler.stash_chunked_request(req)


def _compose(scheduler: QueueingScheduler, plan: StepPlan) -> LaunchedStep | None:
    grown: list[Request] = []
    taken = [_take_chunk(scheduler, chunk, grown) for chunk in plan.prefill]
    for request in grown:  # only now: what is expected of a request must not change under its plan
        scheduler.expect_hits_again(request)
    chunks = [span for span in taken if span is not None]
    decodes, ends = _take_decodes(scheduler, plan)
    if not chunks and not decodes:
        return None
    decode_batch = (
        scheduler.runtime.decode_requests.prepare([live.req for live in decodes])
        if decodes
        else None
    )
    batch = decode_batch
    if chunks:
        batch = _prefill_batch(scheduler, chunks)
        if decode_batch is not None:
            mix(batch, decode_batch)
    return LaunchedStep(plan, batch, chunks, decodes, ends)


def _take_decodes(
    scheduler: QueueingScheduler, plan: StepPlan
) -> tuple[list[LiveRequest], list[int]]:
    """The decoding requests not ended since the snapshot, and their KV lengths with this step.

    Only a retract processes results between snapshot and step, so only then a request can have
    ended.
    """
    # Hundreds of requests in a full step: few passes, each without a branch.
    by_id, page_size = scheduler.runtime.requests.by_id, scheduler.page_size
    if plan.retracts:
        found = [by_id[rid] for rid in plan.decode if rid in by_id]
        lives = [
            live
            for live in found
            if live.req.finished_reason is None and live.request.phase is DECODE
        ]
    else:
        lives = [by_id[rid] for rid in plan.decode if rid in by_id]
    ends = [live.req.kv_committed_len + 1 for live in lives]
    pages = ends if page_size == 1 else [-(-end // page_size) for end in ends]
    for live, end, num_pages in zip(lives, ends, pages, strict=True):
        request = live.request
        request.computed_tokens = end
        request.device_pages = num_pages
    return lives, ends


def _take_chunk(
    scheduler: QueueingScheduler, chunk: Chunk, grown: list[Request]
) -> ChunkSpan | None:
    """Reserve the next prompt tokens of a request; a waiting request gets slot and prefix here.

    ``grown`` is told of requests whose prefix hit is longer than the plan knew.
    """
    live = scheduler.runtime.requests.get(chunk.rid)
    if live is None or live.req.finished() or live.req.to_finish is not None:
        # SGLang ends an aborted prompt only with its last chunk; here it is reaped before.
        return None
    req, request = live.req, live.request
    fresh, expected = not request.holds_slot, request.cached_tokens
    # Pages were promised up to here; a prefix hit the plan did not know of locks pages too.
    promised_end = request.start_tokens + chunk.num_tokens
    if fresh:
        req.init_next_round_input(scheduler.tree_cache)
        request.cached_tokens = len(req.prefix_indices)
        if request.cached_tokens > expected:
            grown.append(request)
        if request.cached_tokens >= promised_end:
            return None  # more is cached than the plan meant to compute: plan it again
        scheduler.tree_cache.inc_lock_ref(req.last_node)
        scheduler.runtime.requests.start(live, Phase.PREFILL)
        # It is computed anew, so what the host holds of it is over: a tail page kept there would
        # stand before pages checkpointed later, half filled.
        scheduler.runtime.checkpointer.forget(live)
    else:
        req.init_next_round_input()
    start = len(req.prefix_indices)
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
    request.device_pages = -(-end // scheduler.page_size)
    req.set_extend_range(start, end)
    if span.middle:
        req.inflight_middle_chunks += 1
    else:
        request.phase = Phase.DECODE
    return span


def _prefill_batch(scheduler: QueueingScheduler, chunks: list[ChunkSpan]) -> Any:
    reqs = [span.live.req for span in chunks]
    fresh = {id(span.live.req) for span in chunks if span.fresh}
    if fresh:
        scheduler.waiting_queue = [r for r in scheduler.waiting_queue if id(r) not in fresh]
        set_time_batch([r for r in reqs if id(r) in fresh], "set_forward_entry_time")
    batch = ScheduleBatch.init_new(
        reqs,
        scheduler.req_to_token_pool,
        scheduler.token_to_kv_pool_allocator,
        scheduler.tree_cache,
        scheduler.model_config,
        scheduler.enable_overlap,
        scheduler.spec_algorithm,
    )
    batch.prepare_for_extend()
    tell_penalties(batch)  # of what requests that are computed again have said
    batch.prefill_stats = PrefillStats(
        log_input_tokens=sum(span.end - span.start for span in chunks),
        log_hit_tokens=sum(span.start for span in chunks if span.fresh),
        new_token_ratio=scheduler.new_token_ratio_tracker.current,
        num_running_reqs=QueueCount.from_reqs(scheduler.running_batch.reqs),
        num_new_seqs=len(chunks),
    )
    batch.decoding_reqs = None
    return batch


# --- Undo what a step reserved for a request whose work was thrown away.
#
# The pass wrote garbage, or nothing, into the slots ``[start, end)`` of the request. Everything
# before ``start`` is intact, so the request keeps it and its slot, and the next step computes the
# same tokens again. Only a request that got its slot in this very step goes back to the waiting
# queue.
#
# Kernels of a stopped pass may still be running on CUDA: slots given back here are written again
# only by later work on the same stream; copies on other streams wait for an event.


def undo_positions(scheduler: QueueingScheduler, step: LaunchedStep, positions: list[int]) -> None:
    """Undo the requests at these batch positions of ``step``."""
    requeued: list[LiveRequest] = []
    for i in positions:
        span = step.spans[i]
        step.dropped.add(i)
        span.live.processed()  # no result will come for it
        req = span.live.req
        if req.kv is None:  # finished by an older result in between
            continue
        _free_tail(scheduler, req, span.start, span.end)
        if isinstance(span, ChunkSpan):
            _undo_chunk(req, span)
            if span.fresh:
                _release_slot(scheduler, req)
                phase = Phase.RETRACTED if req.retracted_stain else Phase.WAITING
                scheduler.runtime.requests.undo_start(span.live, phase)
                span.live.request.cached_tokens = span.start
                requeued.append(span.live)
                continue
            span.live.request.phase = Phase.PREFILL
        else:
            req.decode_batch_idx -= 1
        span.live.request.computed_tokens = span.start
        span.live.request.device_pages = -(-span.start // scheduler.page_size)
    scheduler.waiting_queue[:0] = [live.req for live in requeued]


def _free_tail(scheduler: QueueingScheduler, req: Any, start: int, end: int) -> None:
    """Give back the KV slots ``[start, end)``; a page shared with older tokens stays."""
    page = scheduler.page_size
    first_free = -(-start // page) * page
    if first_free < end:
        slots = scheduler.req_to_token_pool.req_to_token[req.req_pool_idx, first_free:end]
        scheduler.token_to_kv_pool_allocator.free(slots.long())
    req.kv_committed_len = start
    req.kv.kv_allocated_len = start


def _undo_chunk(req: Any, span: ChunkSpan) -> None:
    if span.middle:
        req.inflight_middle_chunks -= 1
    # "nothing new since the last cached chunk": SGLang's own form of a parked chunk
    req.set_extend_range(span.start, span.start)
    req.extend_batch_idx -= 1
    req.cached_tokens = span.cached_tokens
    req.already_computed = span.already_computed
    req._cache_breakdown_computed = span.breakdown_computed


def _release_slot(scheduler: QueueingScheduler, req: Any) -> None:
    """The request started in this step: unlock its prefix and give the slot back."""
    scheduler.tree_cache.dec_lock_ref(req.last_node)
    scheduler.req_to_token_pool.free(req)
    req.kv = None
    req.kv_committed_len = 0
    req.prefix_indices = req.prefix_indices[:0]
    req.last_node = None
    req.cache_protected_len = 0
    req.extend_range = None
