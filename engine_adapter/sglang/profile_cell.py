"""Run one made-up step on the real model runner and time it.

The rows of a cell have KV slots and a request slot but no content worth keeping: the time of a
pass does not depend on it. Everything is given back before the function returns.
"""

from __future__ import annotations

import time
from array import array
from typing import Any

import torch
from sglang.srt.managers.overlap_utils import RelayPayload, resolve_forward_inputs
from sglang.srt.managers.schedule_batch import Req, ReqKvInfo, ScheduleBatch
from sglang.srt.mem_cache.common import evict_from_tree_cache
from sglang.srt.sampling.sampling_params import SamplingParams

from engine_adapter.scheduling.fit import Cell, Sample
from engine_adapter.sglang.cuda_pass import emulated_pass, host_computes
from engine_adapter.sglang.decode_rows import DecodeRows, mix


def fits(scheduler: Any, cell: Cell) -> bool:
    """Whether the cell can run beside what is in use on the device now.

    Pages of the prefix cache that no row uses are room, as they are for SGLang's own rows.
    """
    free = scheduler.token_to_kv_pool_allocator.available_size()
    return (
        scheduler.req_to_token_pool.available_size() >= cell.num_rows
        and free + scheduler.tree_cache.evictable_size() >= _tokens(scheduler, cell)
    )


def run_cell(scheduler: Any, cell: Cell) -> Sample:
    """Time one pass over the cell's rows; the cell must fit."""
    evict_from_tree_cache(scheduler.tree_cache, _tokens(scheduler, cell))
    chunk_reqs = [_row(scheduler, c, p) for p, c in cell.chunks]
    decode_reqs = [_row(scheduler, c, 0) for c in cell.decode]
    for req in decode_reqs:
        _hold(scheduler, req)
    try:
        decode_batch = DecodeRows(scheduler).prepare(decode_reqs) if decode_reqs else None
        batch = _prefill(scheduler, chunk_reqs) if chunk_reqs else decode_batch
        if chunk_reqs and decode_batch is not None:
            mix(batch, decode_batch)
        measured_s = _timed_pass(scheduler, batch)
    finally:
        for req in chunk_reqs + decode_reqs:
            _give_back(scheduler, req)
    return Sample(cell.decode, cell.chunks, measured_s)


def _tokens(scheduler: Any, cell: Cell) -> int:
    """KV tokens the cell takes at most: rows end within pages."""
    return int(cell.num_tokens + cell.num_rows * scheduler.page_size)


def _timed_pass(scheduler: Any, batch: Any) -> float:
    # On a CPU this thread computes: its own time is what a quiet machine would need, and what
    # neighbours add shows up as drift. On a GPU the thread waits, so wall time it is.
    clock = time.thread_time if host_computes(scheduler) else time.monotonic
    torch.get_device_module(scheduler.device).synchronize()  # work that is not this cell's
    started_s = clock()
    resolve_forward_inputs(batch, scheduler.future_map)
    result = scheduler.tp_worker.forward_batch_generation(batch)
    if isinstance(result.next_token_ids, torch.Tensor):
        result.next_token_ids.cpu()  # waits for the device
    measured_s = clock() - started_s
    emulated = emulated_pass(scheduler.tp_worker.model_runner)
    if emulated is not None:
        measured_s = emulated.timeline.last_s
    runner = getattr(scheduler.model_worker, "war_fastpath_runner", None)
    if runner is not None:  # the next step must not take this pass for the one before it
        runner.war_fastpath_read_done_event = None
    return measured_s


def _row(scheduler: Any, context: int, num_tokens: int) -> Any:
    params = SamplingParams(max_new_tokens=8, temperature=0.0, ignore_eos=True)
    params.normalize(None)
    # 7 is a token of every vocabulary; its embedding is as good as any other.
    ids = array("q", [7]) * (context + max(1, num_tokens))
    req = Req("coserve-profile", "", ids, params, vocab_size=scheduler.model_config.vocab_size)
    req.tokenizer = scheduler.tokenizer
    page = scheduler.page_size
    pages = -(-context // page) * page
    slots = scheduler.token_to_kv_pool_allocator.alloc(pages) if pages else None
    empty = torch.empty((0,), dtype=torch.int64, device=scheduler.device)
    req.prefix_indices = slots[:context].to(torch.int64) if slots is not None else empty
    req.full_untruncated_fill_ids = ids
    req.set_extend_range(context, context + num_tokens)
    return req


def _hold(scheduler: Any, req: Any) -> None:
    """Make the row look like one that has been prefilled."""
    length = len(req.prefix_indices)
    scheduler.req_to_token_pool.alloc([req])
    table = scheduler.req_to_token_pool
    table.write((req.req_pool_idx, slice(0, length)), req.prefix_indices.to(torch.int32))
    req.kv = ReqKvInfo(kv_allocated_len=length, swa_evicted_seqlen=0)
    req.kv_committed_len = length
    slot = torch.tensor([req.req_pool_idx], dtype=torch.int64, device=scheduler.device)
    token = torch.tensor([7], dtype=torch.int64, device=scheduler.device)
    scheduler.future_map.stash(slot, RelayPayload(bonus_tokens=token))


def _prefill(scheduler: Any, reqs: list[Any]) -> Any:
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
    return batch


def _give_back(scheduler: Any, req: Any) -> None:
    allocator = scheduler.token_to_kv_pool_allocator
    if req.kv is None:
        allocator.free(req.prefix_indices)
        return
    table = scheduler.req_to_token_pool.req_to_token
    allocator.free(table[req.req_pool_idx, : req.kv.kv_allocated_len].long())
    scheduler.req_to_token_pool.free(req)
    req.kv = None
