"""Carry a plan out with SGLang's own parts: the only module that moves rows between states.

Order, as the plan says: retracts, prefetches, checkpoints, then one batch over the chosen rows.
Chunks come first in the batch and decoding requests after them, which is SGLang's mixed layout.
"""

from __future__ import annotations

from typing import Any

from sglang.srt.managers.schedule_batch import ScheduleBatch, release_req
from sglang.srt.managers.scheduler_components.metrics_reporter import PrefillStats
from sglang.srt.observability.metrics_collector import QueueCount
from sglang.srt.observability.req_time_stats import set_time_batch

from engine_adapter.scheduling.plan import Chunk, StepPlan
from engine_adapter.scheduling.request import Phase, RequestRow
from engine_adapter.sglang.decode_rows import mix, tell_penalties
from engine_adapter.sglang.launched_step import ChunkSpan, LaunchedStep
from engine_adapter.sglang.live_rows import LiveRow

DECODE = Phase.DECODE


def actuate(scheduler: Any, plan: StepPlan) -> LaunchedStep | None:
    """Bring the engine from the snapshot's state to the plan's; None if nothing is computed."""
    if plan.retracts:
        retract_rows(scheduler, plan.retracts)
    if plan.prefetches:
        scheduler.prefetcher.prefetch(plan.prefetches, scheduler.rows)
    if plan.checkpoints:
        scheduler.checkpointer.checkpoint(plan.checkpoints, scheduler.rows)
    return _compose(scheduler, plan)


def retract_rows(scheduler: Any, rids: tuple[str, ...]) -> None:
    """Take slot and device pages away from these rows and queue them again.

    A row whose result is still on its way is retracted after that result: its last token would be
    lost otherwise.
    """
    if any((live := scheduler.rows.get(rid)) and live.pending for rid in rids):
        scheduler.process_pending_results()
    for rid in rids:
        live = scheduler.rows.get(rid)
        if live is not None and live.row.holds_slot and not live.req.finished():
            _retract(scheduler, live)
    scheduler.decode_rows.forget()


def _retract(scheduler: Any, live: LiveRow) -> None:
    req = live.req
    if req.input_token_logprobs is not None:
        # Half of the prompt's log-probabilities, which SGLang forgets here: all of it is computed
        # again, since a row that went on from its KV would have the other half alone.
        scheduler.checkpointer.forget(live)
    elif live.row.phase is not Phase.PREFETCHING:
        scheduler.checkpointer.park_tail(live)
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
    scheduler.rows.retract(live)
    # A row whose KV is lost is prefilled with everything it has said; the last chunk goes on.
    live.row.fill_tokens = len(req.origin_input_ids) + len(req.output_ids)
    scheduler.waiting_queue.append(req)
    req.time_stats.set_wait_queue_entry_time()
    scheduler.counters.retracts += 1


def settle(scheduler: Any, step: LaunchedStep) -> None:
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


def _compose(scheduler: Any, plan: StepPlan) -> LaunchedStep | None:
    grown: list[RequestRow] = []
    taken = [_take_chunk(scheduler, chunk, grown) for chunk in plan.prefill]
    for row in grown:  # only now: what is expected of a row must not change under its plan
        scheduler.expect_hits_again(row)
    chunks = [span for span in taken if span is not None]
    decodes, ends = _take_decodes(scheduler, plan)
    if not chunks and not decodes:
        return None
    decode_batch = (
        scheduler.decode_rows.prepare([live.req for live in decodes]) if decodes else None
    )
    batch = decode_batch
    if chunks:
        batch = _prefill_batch(scheduler, chunks)
        if decode_batch is not None:
            mix(batch, decode_batch)
    return LaunchedStep(plan, batch, chunks, decodes, ends)


def _take_decodes(scheduler: Any, plan: StepPlan) -> tuple[list[LiveRow], list[int]]:
    """The decoding requests not ended since the snapshot, and their KV lengths with this step.

    Only a retract processes results between snapshot and step, so only then a row can have ended.
    """
    # Hundreds of rows in a full step: few passes, each without a branch.
    by_id, page_size = scheduler.rows.by_id, scheduler.page_size
    if plan.retracts:
        found = [by_id[rid] for rid in plan.decode if rid in by_id]
        lives = [
            live for live in found if live.req.finished_reason is None and live.row.phase is DECODE
        ]
    else:
        lives = [by_id[rid] for rid in plan.decode if rid in by_id]
    ends = [live.req.kv_committed_len + 1 for live in lives]
    pages = ends if page_size == 1 else [-(-end // page_size) for end in ends]
    for live, end, num_pages in zip(lives, ends, pages, strict=True):
        row = live.row
        row.computed_tokens = end
        row.device_pages = num_pages
    return lives, ends


def _take_chunk(scheduler: Any, chunk: Chunk, grown: list[RequestRow]) -> ChunkSpan | None:
    """Reserve the next prompt tokens of a row; a waiting request gets slot and prefix here.

    ``grown`` is told of rows whose prefix hit is longer than the plan knew.
    """
    live = scheduler.rows.get(chunk.rid)
    if live is None or live.req.finished() or live.req.to_finish is not None:
        # SGLang ends an aborted prompt only with its last chunk; here it is reaped before.
        return None
    req, row = live.req, live.row
    fresh, expected = not row.holds_slot, row.cached_tokens
    # Pages were promised up to here; a prefix hit the plan did not know of locks pages too.
    promised_end = row.start_tokens + chunk.num_tokens
    if fresh:
        req.init_next_round_input(scheduler.tree_cache)
        row.cached_tokens = len(req.prefix_indices)
        if row.cached_tokens > expected:
            grown.append(row)
        if row.cached_tokens >= promised_end:
            return None  # more is cached than the plan meant to compute: plan it again
        scheduler.tree_cache.inc_lock_ref(req.last_node)
        scheduler.rows.start(live, Phase.PREFILL)
        # It is computed anew, so what the host holds of it is over: a tail page kept there would
        # stand before pages checkpointed later, half filled.
        scheduler.checkpointer.forget(live)
    else:
        req.init_next_round_input()
    start = len(req.prefix_indices)
    end = min(start + chunk.num_tokens, promised_end, row.fill_tokens)
    span = ChunkSpan(
        live,
        start,
        end,
        fresh=fresh,
        middle=end < row.fill_tokens,
        cached_tokens=req.cached_tokens,
        already_computed=req.already_computed,
        breakdown_computed=req._cache_breakdown_computed,
    )
    row.computed_tokens = end
    row.device_pages = -(-end // scheduler.page_size)
    req.set_extend_range(start, end)
    if span.middle:
        req.inflight_middle_chunks += 1
    else:
        row.phase = Phase.DECODE
    return span


def _prefill_batch(scheduler: Any, chunks: list[ChunkSpan]) -> Any:
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
    tell_penalties(batch)  # of what rows that are computed again have said
    batch.prefill_stats = PrefillStats(
        log_input_tokens=sum(span.end - span.start for span in chunks),
        log_hit_tokens=sum(span.start for span in chunks if span.fresh),
        new_token_ratio=scheduler.new_token_ratio_tracker.current,
        num_running_reqs=QueueCount.from_reqs(scheduler.running_batch.reqs),
        num_new_seqs=len(chunks),
    )
    batch.decoding_reqs = None
    return batch
