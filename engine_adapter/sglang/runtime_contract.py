"""What the runtime takes for granted about SGLang beyond what every mode needs.

Three kinds of promises: parameters of what it calls or overrides, attributes it reads and writes,
and the text of methods it replaces without calling them. A changed text means: read it again and
carry what changed into ours.
"""

from __future__ import annotations

import dataclasses
import inspect
import pkgutil
from collections.abc import Mapping
from typing import Any

from engine_adapter.source_digests import changed_sources

_M = "sglang.srt.managers."
_RESULTS = _M + "scheduler_components.batch_result_processor.SchedulerBatchResultProcessor."
_CHECKER = _M + "scheduler_components.invariant_checker.SchedulerInvariantChecker."
_BREAKABLE = (
    "sglang.srt.model_executor.runner_backend_utils.breakable_cuda_graph.breakable_cuda_graph."
    "BreakableCUDAGraph."
)
SIGNATURES: Mapping[str, tuple[str, ...]] = {
    _M + "scheduler.Scheduler._add_request_to_queue": ("self", "req", "is_retracted"),
    _M + "scheduler.Scheduler.is_disable_overlap_for_batch": ("self", "batch", "last_batch"),
    _M + "scheduler.Scheduler._relay_forward_payload": ("self", "future_indices", "batch_result"),
    _M + "scheduler.Scheduler.init_ipc_channels": ("self", "port_args"),
    _M + "scheduler.Scheduler.init_idle_sleeper": ("self",),
    _M + "scheduler.Scheduler.flush_cache": ("self", "empty_cache"),
    _M + "scheduler.Scheduler.stash_chunked_request": ("self", "req"),
    _M + "schedule_batch.ScheduleBatch.mix_with_running": ("self", "running_batch"),
    _M + "schedule_batch.ScheduleBatch.prepare_for_extend": ("self",),
    _M + "schedule_batch.ScheduleBatch.prepare_for_decode": ("self",),
    _M + "schedule_batch.Req.set_extend_range": ("self", "start", "end"),
    _M + "overlap_utils.resolve_forward_inputs": ("batch", "future_map"),
    _M + "overlap_utils.FutureMap.stash": ("self", "future_indices", "payload"),
    "sglang.srt.mem_cache.common.release_kv_cache": ("req", "tree_cache", "is_insert"),
    "sglang.srt.mem_cache.common.evict_from_tree_cache": ("tree_cache", "num_tokens"),
    "sglang.srt.models.llama.LlamaDecoderLayer.forward": (
        "self",
        "positions",
        "hidden_states",
        "forward_batch",
        "residual",
    ),
}
FIELDS: Mapping[str, tuple[str, ...]] = {
    _M + "schedule_batch.ScheduleBatch": (
        "reqs",
        "seq_lens",
        "seq_lens_cpu",
        "orig_seq_lens",
        "seq_lens_sum",
        "req_pool_indices",
        "req_pool_indices_cpu",
        "input_ids",
        "prefix_lens",
        "decoding_reqs",
        "prefill_stats",
        "forward_iter",
        "sampling_info",
        "multimodal_inputs",
    ),
    "sglang.srt.model_executor.forward_batch_info.ForwardBatch": (
        "batch_size",
        "input_ids",
        "out_cache_loc",
        "positions",
        "req_pool_indices",
        "seq_lens",
        "seq_lens_cpu",
        "seq_lens_sum",
        "orig_seq_lens",
        "extend_seq_lens",
        "extend_prefix_lens",
        "extend_start_loc",
        "extend_num_tokens",
        "extend_seq_lens_cpu",
        "extend_prefix_lens_cpu",
        "extend_logprob_start_lens_cpu",
    ),
    _M + "schedule_batch.ReqKvInfo": ("kv_allocated_len", "swa_evicted_seqlen"),
    _M + "utils.GenerationBatchResult": ("next_token_ids", "copy_done", "delay_sample_func"),
}
# Methods replaced or relied on line by line (`engine_adapter.source_digests`).
SOURCES: Mapping[str, str] = {
    _M + "scheduler.Scheduler.get_next_batch_to_run": "d47001b6be583bab",
    _M + "scheduler.Scheduler._get_new_batch_prefill_raw": "c5c6bf2c7ba6bbb9",
    _M + "scheduler.Scheduler.update_running_batch": "55fc19e0ba099499",
    _M + "scheduler.Scheduler.event_loop_overlap": "ccfc721a7ae85414",
    _M + "scheduler.Scheduler.event_loop_normal": "1bb8fae5cf58c6e5",
    _M + "scheduler.Scheduler.run_batch": "f124fb309e6cc91b",
    _M + "scheduler.Scheduler.pause_generation": "d3c14a7df269b51a",
    _M + "scheduler.Scheduler.abort_request": "06c06ee32ab88760",
    _M + "scheduler.Scheduler.is_fully_idle": "73d3be786215d05b",
    _M + "scheduler.Scheduler.maybe_sleep_on_idle": "3c39e1fe8220ea3b",
    _M + "scheduler.Scheduler.init_idle_sleeper": "fee8204f8bee4c17",
    _M + "scheduler.Scheduler.is_disable_overlap_for_batch": "01505ef006868b96",
    _M + "scheduler.Scheduler.init_deterministic_inference_config": "8bd9e70562cf8134",
    _M + "schedule_batch.ScheduleBatch.mix_with_running": "f01f36ec650f7894",
    _M + "schedule_batch.ScheduleBatch.prepare_for_decode": "33c7601dc0e1df71",
    _M + "schedule_batch.Req.reset_for_retract": "e8230dfcb1392553",
    _M + "schedule_batch.release_req": "d4331967c8e9c257",
    _RESULTS + "process_batch_result_prefill": "b172118e6e81eccf",
    _RESULTS + "process_batch_result_decode": "d2e3347f9e38c567",
    _CHECKER + "_get_total_uncached_sizes": "f3035f506742b15e",
    _BREAKABLE + "replay": "d0956b258d98b6d0",
    "sglang.srt.mem_cache.radix_cache.RadixCache.cache_unfinished_req": "0a14829498b6b5c9",
    "sglang.srt.mem_cache.radix_cache.RadixCache.cache_finished_req": "51ef1184a1ec2954",
}


def broken_runtime_promises() -> list[str]:
    """One sentence for each difference; empty when all is as it was."""
    broken: list[str] = []
    for symbol, wanted in SIGNATURES.items():
        found = tuple(inspect.signature(_resolve(symbol)).parameters)
        if found != wanted:
            broken.append(f"{symbol} takes {found}, expected {wanted}")
    for symbol, names in FIELDS.items():
        have = {field.name for field in dataclasses.fields(_resolve(symbol))}
        if missing := [name for name in names if name not in have]:
            broken.append(f"{symbol} has no {', '.join(missing)}")
    return broken + changed_sources(SOURCES)


def _resolve(symbol: str) -> Any:
    return pkgutil.resolve_name(symbol)
