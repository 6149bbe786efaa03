"""SGLang 0.5.16: a request carries slot, lengths and the indices of its prefix itself."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch
from sglang.srt.managers.schedule_batch import ReqKvInfo, release_req
from sglang.srt.mem_cache.base_prefix_cache import MatchPrefixParams
from sglang.srt.mem_cache.common import release_kv_cache
from sglang.srt.runtime_context import get_server_args

LAYER_ARGUMENTS = ("positions", "hidden_states", "forward_batch", "residual")


def rank(scheduler: Any) -> int:
    return int(scheduler.ps.tp_rank)


def num_ranks(scheduler: Any) -> int:
    return int(scheduler.ps.tp_size)


def resolved(server_args: Any) -> Any:
    return server_args


def sampling_backend() -> str:
    return str(get_server_args().sampling_backend)


def is_deterministic() -> bool:
    return bool(get_server_args().enable_deterministic_inference)


def choose_tree() -> None:
    """The plain prefix tree is the default."""


def hand_over_input(scheduler: Any, stand_in: Any) -> None:
    scheduler.ipc_channels = dataclasses.replace(
        scheduler.ipc_channels, recv_from_tokenizer=stand_in
    )


def copy_stream(scheduler: Any) -> Any:
    return scheduler.copy_stream


def abort_timed_out(scheduler: Any, view: Any) -> None:
    """It is part of the batch choice that ours replaces."""
    scheduler._abort_on_waiting_timeout()
    scheduler._abort_on_running_timeout(view)


def slot(req: Any) -> int | None:
    index: int | None = req.req_pool_idx
    return index


def holds_kv(req: Any) -> bool:
    return req.kv is not None


def kv_len(req: Any) -> int:
    return int(req.kv_committed_len)


def kv_lens(reqs: Sequence[Any]) -> list[int]:
    return [req.kv_committed_len for req in reqs]


def allocated_len(req: Any) -> int:
    return int(req.kv.kv_allocated_len) if req.kv is not None else 0


def set_kv_len(req: Any, length: int) -> None:
    req.kv_committed_len = length
    req.kv.kv_allocated_len = length


def refresh_fill_ids(req: Any) -> None:
    req._refresh_fill_ids()


def prefix_len(req: Any) -> int:
    return len(req.prefix_indices)


def extend_end(req: Any) -> int:
    return int(req.extend_range.end)


def set_extend(req: Any, start: int, end: int) -> None:
    req.set_extend_range(start, end)


def prefix_in_table(scheduler: Any, req: Any, length: int) -> None:
    req.prefix_indices = scheduler.req_to_token_pool.req_to_token[req.req_pool_idx, :length].long()


def lock(tree: Any, req: Any) -> None:
    tree.inc_lock_ref(req.last_node)


def hit_len(tree: Any, key: Any) -> int:
    return len(held_slots(tree, key))


def held_slots(tree: Any, key: Any) -> Any:
    return tree.match_prefix(MatchPrefixParams(key=key)).device_indices


def start_on_prefix(scheduler: Any, req: Any, key: Any) -> int:
    tree, table = scheduler.tree_cache, scheduler.req_to_token_pool
    match = tree.match_prefix(MatchPrefixParams(key=key, req=req))
    req.prefix_indices = match.device_indices
    req.last_node = req.last_host_node = match.last_device_node
    length = req.cache_protected_len = len(req.prefix_indices)
    lock(tree, req)
    if table.alloc([req]) is None:
        raise RuntimeError(f"no request slot for the restore of {req.rid}")
    if length:
        table.write((req.req_pool_idx, slice(0, length)), req.prefix_indices)
    _open_kv(req, length)
    return length


def undo_start(scheduler: Any, req: Any) -> None:
    scheduler.tree_cache.dec_lock_ref(req.last_node)
    if req.req_pool_idx is not None:
        scheduler.req_to_token_pool.free(req)
    req.kv = None
    req.kv_committed_len = 0
    req.prefix_indices = req.prefix_indices[:0]
    req.last_node = None
    req.cache_protected_len = 0
    req.extend_range = None


def release(req: Any, tree: Any) -> None:
    release_kv_cache(req, tree, is_insert=False)


def gathers_frees(allocator: Any) -> bool:
    return not allocator.is_not_in_free_group


def retract(scheduler: Any, req: Any) -> None:
    release_req(
        req=req,
        remaing_req_count=0,
        server_args=scheduler.server_args,
        req_to_token_pool=scheduler.req_to_token_pool,
        token_to_kv_pool_allocator=scheduler.token_to_kv_pool_allocator,
        tree_cache=scheduler.tree_cache,
        hisparse_coordinator=None,
    )


def make_up_prefix(scheduler: Any, req: Any, length: int) -> None:
    """A prompt's prefix is indices; it needs no request slot before it is prepared."""
    pages = -(-length // scheduler.page_size) * scheduler.page_size
    slots = scheduler.token_to_kv_pool_allocator.alloc(pages) if pages else None
    empty = torch.empty((0,), dtype=torch.int64, device=scheduler.device)
    req.prefix_indices = slots[:length].to(torch.int64) if slots is not None else empty


def hold_made_up(scheduler: Any, req: Any) -> None:
    length, table = len(req.prefix_indices), scheduler.req_to_token_pool
    table.alloc([req])
    table.write((req.req_pool_idx, slice(0, length)), req.prefix_indices.to(torch.int32))
    _open_kv(req, length)


def drop_made_up(scheduler: Any, req: Any) -> None:
    allocator, table = scheduler.token_to_kv_pool_allocator, scheduler.req_to_token_pool
    if req.kv is None:
        allocator.free(req.prefix_indices)
        return
    allocator.free(table.req_to_token[req.req_pool_idx, : req.kv.kv_allocated_len].long())
    table.free(req)
    req.kv = None


def cut_hidden(
    forward_batch: Any,
    hidden: Any,
    rest: tuple[Any, ...],
    tokens: Any,
    cut: Callable[[Any, Any], Any],
) -> tuple[Any, ...]:
    """The residual stream is the layer's last argument, None before the first layer."""
    return (cut(hidden, tokens), *(_kept(one, tokens, hidden.shape[0]) for one in rest))


def _kept(one: Any, tokens: Any, height: int) -> Any:
    """Of what else a layer is called with: a tensor of a line for each token loses lines."""
    is_cut = isinstance(one, torch.Tensor) and one.dim() > 0 and one.shape[0] == height
    return one[tokens] if is_cut else one


def token_ids(sampled: Any) -> Any:
    return sampled


def _open_kv(req: Any, length: int) -> None:
    """The request has a slot now, with so many tokens in it."""
    req.kv = ReqKvInfo(kv_allocated_len=length, swa_evicted_seqlen=0)
    req.kv_committed_len = length
