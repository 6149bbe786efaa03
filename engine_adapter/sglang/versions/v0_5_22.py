"""SGLang 0.5.22 and 0.5.23: `req.kv` is always there, a prefix is a length, locks have receipts.

The residual stream between layers is kept with the batch, and the arguments stay as they were
given: what the engine runs with is asked of SGLang's context.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch
from sglang.srt.layers.layer_boundary.residual import batch as residual_batch
from sglang.srt.managers.schedule_batch import release_req
from sglang.srt.mem_cache.base_prefix_cache import MatchPrefixParams
from sglang.srt.mem_cache.common import release_kv_cache
from sglang.srt.runtime_context import get_exec, get_parallel

LAYER_ARGUMENTS = ("positions", "hidden_states", "forward_batch")
TREE_BACKEND = "coserve"


def rank(scheduler: Any) -> int:
    return int(get_parallel().tp_rank)


def num_ranks(scheduler: Any) -> int:
    return int(get_parallel().tp_size)


def resolved(server_args: Any) -> Any:
    from sglang.srt.arg_groups.model_override_base import resolved_view

    return resolved_view(server_args)


def sampling_backend() -> str:
    return str(get_exec().kernel.sampling_backend)


def is_deterministic() -> bool:
    return bool(get_exec().deterministic.enable_deterministic_inference)


def choose_tree() -> None:
    """`UnifiedRadixCache` is the default here; its nodes are handles that nobody else reads."""
    from sglang.srt.mem_cache import registry
    from sglang.srt.mem_cache.radix_cache import RadixCache
    from sglang.srt.runtime_context import get_context, get_memory

    if TREE_BACKEND not in registry.registered_radix_cache_backends():
        registry.register_radix_cache_backend(
            TREE_BACKEND,
            lambda ctx: (
                registry.default_radix_cache_factory(ctx)
                if ctx.is_hybrid_swa or ctx.is_hybrid_ssm
                else RadixCache(ctx.params)
            ),
        )
    memory = get_memory()
    if memory.radix_cache_backend is None and not memory.disable_radix_cache:
        get_context().override(source=TREE_BACKEND, radix_cache_backend=TREE_BACKEND)


def hand_over_input(scheduler: Any, stand_in: Any) -> None:
    """The scheduler reads `recv_from_tokenizer` of its own, and its channels stay complete."""
    scheduler.ipc_channels = dataclasses.replace(
        scheduler.ipc_channels, recv_from_tokenizer=stand_in
    )
    scheduler.recv_from_tokenizer = stand_in


def copy_stream(scheduler: Any) -> Any:
    return scheduler.copy_stream


def abort_timed_out(scheduler: Any, view: Any) -> None:
    """SGLang does it where it reads its messages, alike on all ranks."""


def slot(req: Any) -> int | None:
    index: int | None = req.kv.req_pool_idx
    return index


def holds_kv(req: Any) -> bool:
    return bool(req.kv.holds_kv)


def kv_len(req: Any) -> int:
    return int(req.kv.kv_committed_len)


def kv_lens(reqs: Sequence[Any]) -> list[int]:
    return [req.kv.kv_committed_len for req in reqs]


def allocated_len(req: Any) -> int:
    return int(req.kv.kv_allocated_len)


def set_kv_len(req: Any, length: int) -> None:
    req.kv.kv_committed_len = length
    req.kv.kv_allocated_len = length


def refresh_fill_ids(req: Any) -> None:
    req.refresh_fill_ids()


def prefix_len(req: Any) -> int:
    return int(req.prefix_len)


def extend_end(req: Any) -> int:
    return int(req.extend_end)


def set_extend(req: Any, start: int, end: int) -> None:
    req.prefix_len = start
    req.extend_end = end


def prefix_in_table(scheduler: Any, req: Any, length: int) -> None:
    req.prefix_len = length


def lock(tree: Any, req: Any) -> None:
    req.lock = tree.lock(req.last_node)


def hit_len(tree: Any, key: Any) -> int:
    return int(tree.match_prefix(MatchPrefixParams(key=key)).device_prefix_len)


def held_slots(tree: Any, key: Any) -> Any:
    match = tree.match_prefix(MatchPrefixParams(key=key))
    return tree.path_device_indices(match.last_device_node)[: match.device_prefix_len]


def start_on_prefix(scheduler: Any, req: Any, key: Any) -> int:
    tree, table = scheduler.tree_cache, scheduler.req_to_token_pool
    match = tree.match_prefix(MatchPrefixParams(key=key, req=req))
    length = req.prefix_len = int(match.device_prefix_len)
    req.last_node = req.last_host_node = req.best_match_node = match.last_device_node
    req.kv.cache_protected_len = length
    lock(tree, req)
    indices = tree.prefix_device_indices(req)
    if table.alloc([req]) is None:
        raise RuntimeError(f"no request slot for the restore of {req.rid}")
    if length:
        table.write((req.kv.req_pool_idx, slice(0, length)), indices.to(torch.int32))
    set_kv_len(req, length)
    return length


def undo_start(scheduler: Any, req: Any) -> None:
    scheduler.tree_cache.unlock(req.lock)
    req.lock = None
    if req.kv.holds_kv:
        scheduler.req_to_token_pool.free(req)
    req.kv.mark_kv_released()
    req.kv.kv_committed_len = 0
    req.kv.cache_protected_len = 0
    req.kv.cache_inserted_len = 0
    req.prefix_len = 0
    req.last_node = None
    req.extend_end = None


def release(req: Any, tree: Any) -> None:
    release_kv_cache(req, tree, checkpoint=False)


def gathers_frees(allocator: Any) -> bool:
    return allocator.free_group is not None


def retract(scheduler: Any, req: Any) -> None:
    release_req(
        req=req,
        remaing_req_count=0,
        req_to_token_pool=scheduler.req_to_token_pool,
        token_to_kv_pool_allocator=scheduler.token_to_kv_pool_allocator,
        tree_cache=scheduler.tree_cache,
        hisparse_coordinator=None,
    )


def make_up_prefix(scheduler: Any, req: Any, length: int) -> None:
    """Without a slot a prefix is read off the tree, which has none: it gets one here."""
    req.prefix_len = length
    if not length:
        return
    pages = -(-length // scheduler.page_size) * scheduler.page_size
    slots = scheduler.token_to_kv_pool_allocator.alloc(pages)
    table = scheduler.req_to_token_pool
    table.alloc([req])
    table.write((req.kv.req_pool_idx, slice(0, length)), slots[:length].to(torch.int32))
    set_kv_len(req, length)


def hold_made_up(scheduler: Any, req: Any) -> None:
    """A decoding request has a context, which is held already."""


def drop_made_up(scheduler: Any, req: Any) -> None:
    if not req.kv.holds_kv:
        return
    table = scheduler.req_to_token_pool
    held = table.req_to_token[req.kv.req_pool_idx, : req.kv.kv_allocated_len]
    scheduler.token_to_kv_pool_allocator.free(held.long())
    table.free(req)
    req.kv.mark_kv_released()


def cut_hidden(
    forward_batch: Any,
    hidden: Any,
    rest: tuple[Any, ...],
    tokens: Any,
    cut: Callable[[Any, Any], Any],
) -> tuple[Any, ...]:
    """The residual stream is kept with the batch, where the model has such boundaries.

    What a sum over the ranks still owes is completed first.
    """
    if getattr(forward_batch, "residual_stream", None) is None:
        height = hidden.shape[0]
        return (cut(hidden, tokens), *(_kept(one, tokens, height) for one in rest))
    hidden = residual_batch.complete_output(hidden, forward_batch)
    if not hasattr(residual_batch, "export_replay_handoff"):
        return (_cut_stream(forward_batch.residual_stream, hidden, tokens), *rest)
    handoff = residual_batch.export_replay_handoff(hidden, forward_batch)
    residual = handoff.residual[tokens] if handoff.residual is not None else None
    kept = handoff._replace(value=handoff.value[tokens], residual=residual)
    return (residual_batch.import_replay_handoff(kept, forward_batch), *rest)


def _kept(one: Any, tokens: Any, height: int) -> Any:
    """Of what else a layer is called with: a tensor of a line for each token loses lines."""
    is_cut = isinstance(one, torch.Tensor) and one.dim() > 0 and one.shape[0] == height
    return one[tokens] if is_cut else one


def _cut_stream(stream: Any, hidden: Any, tokens: Any) -> Any:
    """In 0.5.22, which cannot hand a stream over."""
    kept = hidden[tokens]
    if stream.pending is not None:
        stream.pending.value = kept
    if stream.residual is not None:
        stream.residual = kept if stream.pending is None else stream.residual[tokens]
    return kept


def token_ids(sampled: Any) -> Any:
    """Beside them is what the sampler captured."""
    return sampled[0]
