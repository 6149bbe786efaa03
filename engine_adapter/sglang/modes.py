"""Ways of running SGLang that co-serving does not carry, refused when the engine starts."""

from __future__ import annotations

from typing import Any

from engine_adapter.sglang.settings import OFF, SettingError

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
    "nnodes": 1,
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


def refuse_unsupported_modes(server_args: Any) -> None:
    """Compare the server's arguments with what co-serving was built for.

    Raises:
        SettingError: Naming the argument and the two ways out.
    """
    for name, wanted in REQUIRED.items():
        value = getattr(server_args, name, wanted)
        if value != wanted and (value or wanted):
            flag = "--" + name.replace("_", "-")
            raise SettingError(
                f"co-serving does not work with {flag} {value}; "
                f"start the engine without it or with COSERVE_POLICY={OFF}"
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
