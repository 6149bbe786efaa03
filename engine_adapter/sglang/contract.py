"""What this package takes for granted about SGLang, checked before anything is replaced.

An upgrade of SGLang then ends with a list of what to read again, instead of a wrong answer. Ways of
running SGLang that co-serving does not carry are refused when the engine starts.
"""

from __future__ import annotations

import dataclasses
import inspect
import pkgutil
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from engine_adapter.runtime_settings import OFF, SettingError
from engine_adapter.source_digests import changed_sources

# --- What every mode needs.

PINNED_VERSION = "0.5.16"

# Symbol -> the parameters we override or call it with.
SIGNATURES: Mapping[str, tuple[str, ...]] = {
    "sglang.srt.managers.scheduler.Scheduler.get_internal_state": ("self", "recv_req"),
    "sglang.srt.managers.scheduler.Scheduler.get_next_batch_to_run": (
        "self", "running_batch", "last_batch",
    ),
    "sglang.srt.managers.scheduler.Scheduler.run_batch": ("self", "batch", "pp_proxy_tensors"),
    "sglang.srt.managers.scheduler.Scheduler.process_batch_result": ("self", "batch", "result"),
    "sglang.srt.managers.scheduler.Scheduler.maybe_sleep_on_idle": ("self",),
    "sglang.srt.managers.scheduler.Scheduler.abort_request": ("self", "recv_req"),
    "sglang.srt.managers.scheduler.Scheduler._add_request_to_queue": (
        "self", "req", "is_retracted",
    ),
    "sglang.srt.managers.tokenizer_manager.TokenizerManager._validate_one_request": (
        "self", "obj", "input_ids",
    ),
    "sglang.srt.managers.tokenizer_manager.TokenizerManager.detokenize_logprob_tokens": (
        "self", "token_logprobs_val", "token_logprobs_idx", "decode_to_text",
    ),
    "sglang.srt.managers.tokenizer_manager.TokenizerManager.auto_create_handle_loop": ("self",),
    "sglang.srt.managers.tokenizer_manager.TokenizerManager.freeze_gc": ("self",),
}  # fmt: skip
# Of the process that answers alone: others would have to import them first.
_OPENAI = "sglang.srt.entrypoints.openai."
ANSWERING: Mapping[str, tuple[str, ...]] = {
    _OPENAI + "serving_chat.OpenAIServingChat._process_logprobs_tokens": (
        "self", "logprobs", "use_token_index",
    ),
    _OPENAI + "serving_chat.OpenAIServingChat._generate_stream_content": (
        "self", "content", "index", "request", "stream_offsets", "reasoning_parser_dict",
        "parser_dict", "has_tool_calls", "choice_logprobs", "finish_reason_type",
        "continuous_usage_stats", "prompt_tokens", "reasoning_tokens", "completion_tokens",
    ),
    _OPENAI + "serving_completions.to_openai_style_logprobs": (
        "input_token_logprobs", "output_token_logprobs",
        "input_top_logprobs", "output_top_logprobs",
    ),
}  # fmt: skip


def broken_promises() -> list[str]:
    """One sentence for each thing that is not as expected; empty when all is well."""
    try:
        found = version("sglang")
    except PackageNotFoundError:
        return ["SGLang is not installed"]
    if found != PINNED_VERSION:
        return [
            f"SGLang {found} is installed, this plugin was written for {PINNED_VERSION}: "
            "run `coserve engine install`, which installs it"
        ]
    return differences(SIGNATURES)


def differences(signatures: Mapping[str, tuple[str, ...]]) -> list[str]:
    """One sentence for each symbol whose parameters are not these."""
    return [text for symbol, wanted in signatures.items() if (text := _difference(symbol, wanted))]


def _difference(symbol: str, wanted: tuple[str, ...]) -> str:
    try:
        parameters = tuple(inspect.signature(pkgutil.resolve_name(symbol)).parameters)
    except (ImportError, AttributeError) as error:
        return f"{symbol} is not there ({error})"
    return "" if parameters == wanted else f"{symbol} takes {parameters}, expected {wanted}"


# --- What the runtime takes for granted beyond that.
#
# Three kinds of promises: parameters of what it calls or overrides, attributes it reads and writes,
# and the text of methods it replaces without calling them. A changed text means: read it again and
# carry what changed into ours.

_M = "sglang.srt.managers."
_RESULTS = _M + "scheduler_components.batch_result_processor.SchedulerBatchResultProcessor."
_CHECKER = _M + "scheduler_components.invariant_checker.SchedulerInvariantChecker."
_BREAKABLE = (
    "sglang.srt.model_executor.runner_backend_utils.breakable_cuda_graph.breakable_cuda_graph."
    "BreakableCUDAGraph."
)
RUNTIME_SIGNATURES: Mapping[str, tuple[str, ...]] = {
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
    _M + "schedule_batch.Req.update_finish_state": ("self", "new_accepted_len"),
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
    for symbol, wanted in RUNTIME_SIGNATURES.items():
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


# --- Ways of running SGLang that co-serving does not carry.

# Server argument -> the only value it may have.
REQUIRED: dict[str, object] = {
    "pp_size": 1,
    "dp_size": 1,
    "enable_dp_attention": False,
    "disaggregation_mode": "null",
    "speculative_algorithm": None,
    "enable_pdmux": False,
    "enable_hisparse": False,
    "enable_hierarchical_cache": False,
    "enable_lora": False,
    "enable_lora_overlap_loading": False,
    "enable_streaming_session": False,
    "dllm_algorithm": None,
    "enable_priority_scheduling": False,
    "disable_radix_cache": False,
    "enable_two_batch_overlap": False,
    "enable_single_batch_overlap": False,
    "moe_a2a_backend": "none",
    "attn_cp_size": 1,
    "dcp_size": 1,
    "enable_prefill_cp": False,
    "enable_lmcache": False,
    "enable_flexkv": False,
    "enable_session_radix_cache": False,
    "radix_cache_backend": None,
}

BESIDE = "start engines beside each other; gateways and dispatchers share them out"
INSTEAD: dict[str, str] = {
    "pp_size": "spread the model with --tp-size, over nodes with --nnodes too",
    "dp_size": BESIDE,
    "enable_dp_attention": BESIDE,
    "disaggregation_mode": "let each engine do both: rows give way to chat between two layers",
}
"""What does the same here; the rest is left out."""


def refuse_unsupported_modes(server_args: Any) -> None:
    """Compare the server's arguments with what co-serving was built for.

    Raises:
        SettingError: Naming the argument and the two ways out.
    """
    for name, wanted in REQUIRED.items():
        value = getattr(server_args, name, wanted)
        if value != wanted and (value or wanted):
            flag = "--" + name.replace("_", "-")
            instead = INSTEAD.get(name, "start the engine without it")
            raise SettingError(
                f"co-serving does not work with {flag} {value}; "
                f"{instead}, or start it with COSERVE_POLICY={OFF}"
            )


def refuse_unsupported_pools(scheduler: Any) -> None:
    """Look at what SGLang built for the model.

    Raises:
        SettingError: If the model's KV is not that of plain attention layers, or if its attention
            is the same in every run only where prompts are cut at multiples of many tokens.
    """
    if (align := scheduler.truncation_align_size) is not None:
        raise SettingError(
            f"with --enable-deterministic-inference this attention backend wants prompts cut at "
            f"multiples of {align} tokens, and co-serving cuts them anywhere; start the engine "
            f"with --attention-backend fa3 or with COSERVE_POLICY={OFF}"
        )
    if scheduler.is_hybrid_swa or scheduler.is_hybrid_ssm:
        raise SettingError(
            "co-serving does not carry models with sliding-window or state-space layers yet; "
            f"start the engine with COSERVE_POLICY={OFF}"
        )
    tree = type(scheduler.tree_cache).__name__
    if tree != "RadixCache":
        raise SettingError(
            f"co-serving knows SGLang's plain prefix tree and not {tree}; start the engine with "
            f"COSERVE_POLICY={OFF}"
        )
    kv_pool = scheduler.token_to_kv_pool_allocator.get_kvcache()
    if not (hasattr(kv_pool, "k_buffer") and hasattr(kv_pool, "v_buffer")):
        raise SettingError(
            "co-serving carries models whose KV is keys and values of heads, not a latent one; "
            f"start the engine with COSERVE_POLICY={OFF}"
        )
    if getattr(kv_pool, "k_scale_buffer", None) is not None:
        raise SettingError(
            "co-serving does not carry KV with scales of its own (fp4, mxfp8); start the engine "
            f"with another --kv-cache-dtype or with COSERVE_POLICY={OFF}"
        )
    if not scheduler.is_generation:
        raise SettingError(
            f"co-serving schedules generation; start this model with COSERVE_POLICY={OFF}"
        )
