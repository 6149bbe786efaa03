"""Tiny random models, one for each form that co-serving is tried on. Runs in the engine's venv.

Each has six layers and 512 tokens, like the rig's Llama; its weights are random and large enough
that greedy choices are far from ties.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

NUM_LAYERS = 6
VOCAB = 512
SEED = 7

SIZES: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": NUM_LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": VOCAB,
    "max_position_embeddings": 2048,
    "initializer_range": 0.25,
    "eos_token_id": 1,
    "bos_token_id": 0,
    "pad_token_id": 0,
}


def _llama() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(LlamaConfig(**SIZES))


def _qwen3() -> Any:
    from transformers import Qwen3Config, Qwen3ForCausalLM

    return Qwen3ForCausalLM(Qwen3Config(**SIZES, head_dim=16))


def _qwen3_moe() -> Any:
    from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

    return Qwen3MoeForCausalLM(
        Qwen3MoeConfig(
            **SIZES, head_dim=16, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32
        )
    )


def _mixtral() -> Any:
    from transformers import MixtralConfig, MixtralForCausalLM

    return MixtralForCausalLM(
        MixtralConfig(**SIZES, num_local_experts=4, num_experts_per_tok=2, sliding_window=None)
    )


def _olmo2() -> Any:
    from transformers import Olmo2Config, Olmo2ForCausalLM

    return Olmo2ForCausalLM(Olmo2Config(**SIZES))


def _gemma3() -> Any:
    from transformers import Gemma3ForCausalLM, Gemma3TextConfig

    sizes = {**SIZES, "sliding_window": 32, "head_dim": 16, "query_pre_attn_scalar": 16}
    return Gemma3ForCausalLM(Gemma3TextConfig(**sizes))


def _gpt_oss() -> Any:
    from transformers import GptOssConfig, GptOssForCausalLM

    return GptOssForCausalLM(
        GptOssConfig(
            **SIZES,
            head_dim=16,
            num_local_experts=4,
            num_experts_per_tok=2,
            sliding_window=32,
            swiglu_limit=7.0,
        )
    )


def _deepseek(**more: Any) -> dict[str, Any]:
    return {
        **SIZES,
        "num_key_value_heads": 4,
        "moe_intermediate_size": 32,
        "n_routed_experts": 4,
        "n_shared_experts": 1,
        "num_experts_per_tok": 2,
        "first_k_dense_replace": 1,
        "moe_layer_freq": 1,
        "kv_lora_rank": 32,
        "q_lora_rank": None,
        "qk_rope_head_dim": 16,
        "qk_nope_head_dim": 16,
        "v_head_dim": 16,
        # The only positions that SGLang computes for these models on a CPU.
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": 10000.0,
            "factor": 2.0,
            "original_max_position_embeddings": 1024,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
            "beta_fast": 32,
            "beta_slow": 1,
        },
        "n_group": 1,
        "topk_group": 1,
        **more,
    }


def _deepseek_v2() -> Any:
    from transformers import DeepseekV2Config, DeepseekV2ForCausalLM

    return DeepseekV2ForCausalLM(
        DeepseekV2Config(**_deepseek(topk_method="greedy", scoring_func="softmax"))
    )


def _deepseek_v3() -> Any:
    from transformers import DeepseekV3Config, DeepseekV3ForCausalLM

    return DeepseekV3ForCausalLM(
        DeepseekV3Config(
            **_deepseek(q_lora_rank=32, topk_method="noaux_tc", scoring_func="sigmoid")
        )
    )


def _qwen3_next() -> Any:
    from transformers import Qwen3NextConfig, Qwen3NextForCausalLM

    return Qwen3NextForCausalLM(
        Qwen3NextConfig(
            **SIZES,
            head_dim=16,
            linear_num_key_heads=2,
            linear_num_value_heads=4,
            linear_key_head_dim=16,
            linear_value_head_dim=16,
            num_experts=4,
            num_experts_per_tok=2,
            moe_intermediate_size=32,
            shared_expert_intermediate_size=32,
            full_attention_interval=2,
        )
    )


def _qwen2_vl() -> Any:
    from transformers import Qwen2VLConfig, Qwen2VLForConditionalGeneration

    rope = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 3, 3]}
    vision = {
        "depth": 1,
        "embed_dim": 32,
        "hidden_size": SIZES["hidden_size"],
        "num_heads": 2,
        "mlp_ratio": 2,
        "in_chans": 3,  # SGLang reads this name, which published configurations have
    }
    text = {**SIZES, "rope_parameters": rope}
    return Qwen2VLForConditionalGeneration(Qwen2VLConfig(text_config=text, vision_config=vision))


MODELS: dict[str, Callable[[], Any]] = {
    "llama": _llama,
    "qwen3": _qwen3,
    "qwen3_moe": _qwen3_moe,
    "mixtral": _mixtral,
    "olmo2": _olmo2,
    "gemma3": _gemma3,
    "gpt_oss": _gpt_oss,
    "deepseek_v2": _deepseek_v2,
    "deepseek_v3": _deepseek_v3,
    "qwen3_next": _qwen3_next,
    "qwen2_vl": _qwen2_vl,
}
"""Family -> makes its model."""


def tiny_model(family: str, folder: Path) -> Path:
    """Write the family's model; its folder."""
    torch.manual_seed(SEED)
    MODELS[family]().save_pretrained(folder)
    return folder
