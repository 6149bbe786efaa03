"""Undo what a step reserved for a row whose work was thrown away.

The pass wrote garbage, or nothing, into the slots ``[start, end)`` of the row. Everything before
``start`` is intact, so the row keeps it and its slot, and the next step computes the same tokens
again. Only a row that got its slot in this very step goes back to the waiting queue.

Kernels of a stopped pass may still be running on CUDA: slots given back here are written again
only by later work on the same stream; copies on other streams wait for an event.
"""

from __future__ import annotations

from typing import Any

from engine_adapter.scheduling.request import Phase
from engine_adapter.sglang.launched_step import ChunkSpan, LaunchedStep
from engine_adapter.sglang.live_rows import LiveRow


def undo_positions(scheduler: Any, step: LaunchedStep, positions: list[int]) -> None:
    """Undo the rows at these batch positions of ``step``."""
    requeued: list[LiveRow] = []
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
                scheduler.rows.undo_start(span.live, phase)
                span.live.row.cached_tokens = span.start
                requeued.append(span.live)
                continue
            span.live.row.phase = Phase.PREFILL
        else:
            req.decode_batch_idx -= 1
        span.live.row.computed_tokens = span.start
        span.live.row.device_pages = -(-span.start // scheduler.page_size)
    scheduler.waiting_queue[:0] = [live.req for live in requeued]


def _free_tail(scheduler: Any, req: Any, start: int, end: int) -> None:
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


def _release_slot(scheduler: Any, req: Any) -> None:
    """The row started in this step: unlock its prefix and give the slot back."""
    scheduler.tree_cache.dec_lock_ref(req.last_node)
    scheduler.req_to_token_pool.free(req)
    req.kv = None
    req.kv_committed_len = 0
    req.prefix_indices = req.prefix_indices[:0]
    req.last_node = None
    req.cache_protected_len = 0
    req.extend_range = None
