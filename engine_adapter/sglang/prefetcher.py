"""Bring a retracted request back from the host and let it go on as if it had only been parked.

Pages come back in the order and in the portions a plan asks for. Once all are there the row is
rebuilt from its request: KV length, the last token in SGLang's relay buffer, and it decodes again.
No prefill kernel runs, nothing is computed twice, and the KV is the one that was written before:
greedy output is the same bit for bit, in bfloat16 too.
"""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from sglang.srt.managers.overlap_utils import RelayPayload
from sglang.srt.managers.schedule_batch import ReqKvInfo
from sglang.srt.mem_cache.base_prefix_cache import MatchPrefixParams
from sglang.srt.mem_cache.common import evict_from_tree_cache
from sglang.srt.mem_cache.radix_cache import RadixKey

from engine_adapter.scheduling.plan import Prefetch
from engine_adapter.scheduling.request import Phase
from engine_adapter.sglang.cuda_pass import pass_stream
from engine_adapter.sglang.host_pool import HOST_PAGE_TOKENS, HostPool
from engine_adapter.sglang.live_rows import LiveRow, LiveRows


class Prefetcher:
    """Restores rows from the host pool.

    Attributes:
        num_tokens_restored: Tokens copied back.
        num_rows_restored: Rows that re-entered with everything they had computed.
        cpu_s: Thread CPU time spent here.
    """

    def __init__(self, scheduler: Any, pool: HostPool) -> None:
        """Restore rows of this scheduler out of ``pool``."""
        self._scheduler = scheduler
        self._pool = pool
        self.num_tokens_restored = 0
        self.num_rows_restored = 0
        self.cpu_s = 0.0

    def prefetch(self, orders: tuple[Prefetch, ...], rows: LiveRows) -> None:
        """Carry out restore orders; the driver has checked slots and pages."""
        if not orders:
            return
        started_s = time.thread_time()
        for order in orders:
            live = rows.get(order.rid)
            if live is None:
                continue
            if order.from_page == 0:
                self._take_slot(live, rows, order.num_pages * HOST_PAGE_TOKENS)
            self._restore(live, order.from_page + order.num_pages)
            if live.row.prefetched_pages >= self._pool.ledger.held(live.rid):
                self._re_enter(live)
        self.cpu_s += time.thread_time() - started_s

    def _take_slot(self, live: LiveRow, rows: LiveRows, promised_tokens: int) -> None:
        """Give the row a slot and lock the part of its prefix the tree still has.

        No more than the promised tokens are locked: locked pages are no longer available.
        """
        s, req = self._scheduler, live.req
        req._refresh_fill_ids()
        key = RadixKey(
            token_ids=req.full_untruncated_fill_ids,
            extra_key=req.extra_key,
            limit=min(promised_tokens, live.row.host_tokens),
        )
        match = s.tree_cache.match_prefix(MatchPrefixParams(key=key, req=req))
        req.prefix_indices = match.device_indices
        req.last_node = req.last_host_node = match.last_device_node
        limit = req.cache_protected_len = len(req.prefix_indices)
        s.tree_cache.inc_lock_ref(req.last_node)
        if s.req_to_token_pool.alloc([req]) is None:
            raise RuntimeError(f"no request slot for the restore of {live.rid}")
        if limit:
            s.req_to_token_pool.write((req.req_pool_idx, slice(0, limit)), req.prefix_indices)
        req.kv = ReqKvInfo(kv_allocated_len=limit, swa_evicted_seqlen=0)
        req.kv_committed_len = limit
        s.waiting_queue.remove(req)
        rows.start(live, Phase.PREFETCHING)
        live.row.computed_tokens = limit
        live.row.device_pages = -(-limit // s.page_size)
        live.row.prefetched_pages = 0

    def _restore(self, live: LiveRow, up_to_page: int) -> None:
        s, req = self._scheduler, live.req
        begin = req.kv_committed_len
        end = min(up_to_page * HOST_PAGE_TOKENS, live.row.host_tokens)
        live.row.prefetched_pages = up_to_page
        if end <= begin:
            return
        # Whole device pages: the tail of the row grows into the last one.
        num_slots = -(-end // s.page_size) * s.page_size - begin
        evict_from_tree_cache(s.tree_cache, num_slots)
        slots = s.token_to_kv_pool_allocator.alloc(num_slots)
        if slots is None:
            raise RuntimeError(f"no KV slots for the restore of {live.rid}")
        slots = slots[: end - begin].to(torch.int64)
        first_page = begin // HOST_PAGE_TOKENS
        pages = self._pool.ledger.pages(live.rid, first_page, up_to_page - first_page)
        self._pool.load(slots, pages, begin - first_page * HOST_PAGE_TOKENS)
        s.req_to_token_pool.write((req.req_pool_idx, slice(begin, end)), slots.to(torch.int32))
        req.kv.kv_allocated_len = end
        req.kv_committed_len = end
        live.row.computed_tokens = end
        live.row.device_pages = -(-end // s.page_size)
        self.num_tokens_restored += end - begin

    def _re_enter(self, live: LiveRow) -> None:
        s, req, row = self._scheduler, live.req, live.row
        end = req.kv_committed_len
        req._refresh_fill_ids()
        req.set_extend_range(end, end)
        req.already_computed = end
        s.checkpointer.drop_tail(live)
        if req.output_ids and end == row.fill_tokens - 1:
            row.phase = Phase.DECODE
            self.num_rows_restored += 1
            admit_as_decode_row(s, live)
        else:
            row.phase = Phase.PREFILL
            req.prefix_indices = s.req_to_token_pool.req_to_token[req.req_pool_idx, :end].long()


def admit_as_decode_row(scheduler: Any, live: LiveRow) -> None:
    """Make a row that lost its place decode again, from its own last token.

    SGLang clears ``is_retracted`` only when a row is prefilled; a decoding request that still
    carries it never emits again with the overlap loop.
    """
    req = live.req
    req.is_retracted = False
    slot = torch.tensor([req.req_pool_idx], dtype=torch.int64, device=scheduler.device)
    token = torch.tensor([req.output_ids[-1]], dtype=torch.int64, device=scheduler.device)
    with _behind_passes(scheduler, slot, token):
        scheduler.future_map.stash(slot, RelayPayload(bonus_tokens=token))


def _behind_passes(scheduler: Any, *inputs: torch.Tensor) -> AbstractContextManager[Any]:
    """Run after the launched pass: it relays the last token of whoever had the slot before."""
    stream = pass_stream(scheduler)
    if scheduler.device != "cuda" or stream is None:
        return nullcontext()
    stream.wait_stream(torch.cuda.current_stream())
    for tensor in inputs:
        tensor.record_stream(stream)
    return torch.cuda.stream(stream)
