"""Products with weights that are laid out once, not in every step.

From two tokens of a step on, `torch.nn.functional.linear` on a CPU hands float32 weights to a
library that copies them into its own layout in every call, and it has other kernels for one, two
and three tokens: a decode step of three rows costs more than one of eight. bfloat16 weights are
laid out anew in every call too. oneDNN takes weights that were laid out beforehand: a step's time
then grows evenly with its tokens, which is what a latency model can follow, and a token's numbers
do not depend on the tokens it shares a step with: a single token is computed as one
of two, since oneDNN adds up in another order where there is one. With AMX it does so in bfloat16
from 33 tokens on too, so there a product is made of blocks of 32 tokens.

Other types stay with SGLang, and so does bfloat16 where oneDNN has no kernels for it. The output
layer is packed in the type SGLang computes it in.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

# oneDNN chooses a layout for products of about so many tokens. Layouts chosen for 8 to 512 tokens
# were equally fast at every number of tokens; the one chosen for a single token was not.
_TYPICAL_TOKENS = 32
_AMX_BLOCK_TOKENS = 32


def can_pack(weight: torch.Tensor) -> bool:
    """Whether oneDNN multiplies with this weight on this processor."""
    if weight.device.type != "cpu" or weight.is_mkldnn:
        return False
    if weight.dtype == torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return weight.dtype == torch.float32


def pack(weight: torch.Tensor) -> torch.Tensor:
    """A weight, shape `[out, in]`, in oneDNN's layout (an opaque tensor of that shape)."""
    packed: torch.Tensor = torch.ops.mkldnn._reorder_linear_weight(weight, _TYPICAL_TOKENS)
    return packed


def product(
    x: torch.Tensor, packed: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor:
    """`x`, shape `[..., in]`, times the packed weight, plus `bias`: shape `[..., out]`.

    A token's row of the result is the same to the last bit whatever the other tokens are.
    """
    tokens = x.reshape(-1, x.shape[-1])
    if x.dtype == torch.bfloat16 and _has_amx() and len(tokens) > _AMX_BLOCK_TOKENS:
        blocks = tokens.split(_AMX_BLOCK_TOKENS)
        out = torch.cat([_block(block, packed, bias) for block in blocks])
    else:
        out = _block(tokens, packed, bias)
    return out.view(*x.shape[:-1], out.shape[-1])


def _block(tokens: torch.Tensor, packed: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    alone = len(tokens) == 1
    given = torch.cat([tokens, torch.zeros_like(tokens)]) if alone else tokens
    out: torch.Tensor = torch.ops.mkldnn._linear_pointwise(given, packed, bias, "none", [], "")
    return out[:1] if alone else out


@cache
def _has_amx() -> bool:
    return bool(torch.cpu._is_amx_tile_supported())


def install(linear_method: Any, logits_processor: Any) -> None:
    """Put these into SGLang's classes `UnquantizedLinearMethod` and `LogitsProcessor`."""
    process, apply = linear_method.process_weights_after_loading, linear_method.apply
    compute_logits = logits_processor._compute_lm_head

    def process_weights(self: Any, layer: torch.nn.Module) -> None:
        process(self, layer)
        if can_pack(layer.weight):
            # In place of the plain weight: a model is held once.
            layer.weight = torch.nn.Parameter(pack(layer.weight.data), requires_grad=False)

    def apply_packed(
        self: Any, layer: torch.nn.Module, x: torch.Tensor, bias: torch.Tensor | None = None
    ) -> Any:
        if layer.weight.is_mkldnn:
            return product(x, layer.weight, bias)
        return apply(self, layer, x, bias)

    def compute_packed(
        self: Any,
        hidden_states: torch.Tensor,
        lm_head: Any,
        embedding_bias: Any = None,
        **more: Any,
    ) -> Any:
        packed = _packed_head(self, lm_head)
        if packed is None:
            return compute_logits(self, hidden_states, lm_head, embedding_bias, **more)
        return product(hidden_states.to(packed.dtype), packed)

    linear_method.process_weights_after_loading = process_weights
    linear_method.apply = apply_packed
    logits_processor._compute_lm_head = compute_packed


def _packed_head(processor: Any, lm_head: Any) -> torch.Tensor | None:
    """The output layer's packed weight, made by the first step; None: SGLang computes it."""
    packed: torch.Tensor | None = getattr(lm_head, "coserve_packed", None)
    if packed is None:
        weight = getattr(lm_head, "weight", None)
        if (
            weight is None
            or processor.rl_on_policy_target is not None
            or hasattr(lm_head, "set_lora")
            or type(getattr(lm_head, "quant_method", None)).__name__ != "UnquantizedEmbeddingMethod"
        ):
            return None
        computed_in = weight.data.float() if processor.use_fp32_lm_head else weight.data
        if not can_pack(computed_in):
            return None
        packed = lm_head.coserve_packed = pack(computed_in)
    return packed
