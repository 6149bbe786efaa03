"""Packed weights against SGLang's own products. Runs in the engine's venv."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
from sglang.srt.layers.logits_processor import LogitsProcessor  # noqa: E402
from sglang.srt.layers.quantization.unquant import UnquantizedLinearMethod  # noqa: E402
from sglang.srt.layers.vocab_parallel_embedding import UnquantizedEmbeddingMethod  # noqa: E402

from engine_adapter.cpu_compat import linear  # noqa: E402

IN, OUT = 48, 80
TOKENS = (0, 1, 2, 3, 7, 64, 300)


class Packed(UnquantizedLinearMethod):  # type: ignore[misc]
    """The same class with our functions in place."""


class PackedLogits(LogitsProcessor):  # type: ignore[misc]
    """The same class with our function in place."""


linear.install(Packed, PackedLogits)


def layer_of(weight: torch.Tensor) -> torch.nn.Module:
    layer = torch.nn.Module()
    layer.weight = torch.nn.Parameter(weight.clone(), requires_grad=False)
    return layer


def logits(kind: type, head: Any, hidden: torch.Tensor, wide: bool) -> torch.Tensor:
    processor = SimpleNamespace(use_fp32_lm_head=wide, rl_on_policy_target=None)
    found: torch.Tensor = kind._compute_lm_head(processor, hidden, head)  # type: ignore[attr-defined]
    return found


def main() -> None:
    torch.manual_seed(3)
    worst: dict[str, float] = {}
    packed: dict[str, bool] = {}
    for dtype in (torch.float32, torch.bfloat16):
        weight, bias = torch.randn(OUT, IN).to(dtype), torch.randn(OUT).to(dtype)
        stock, ours = layer_of(weight), layer_of(weight)
        UnquantizedLinearMethod().process_weights_after_loading(stock)
        Packed().process_weights_after_loading(ours)
        packed[f"linear {dtype}"] = ours.weight.is_mkldnn
        for n in TOKENS:
            for given in (
                torch.randn(n, IN).to(dtype),
                torch.randn(2, n, 2 * IN)[..., :IN].to(dtype),
            ):
                for b in (None, bias):
                    a = UnquantizedLinearMethod().apply(stock, given, b)
                    c = Packed().apply(ours, given, b)
                    assert (a.shape, a.dtype) == (c.shape, c.dtype)
                    gap = (a.float() - c.float()).abs().max() if n else 0.0
                    name = f"linear {dtype} {tuple(given.shape)} {b is not None}"
                    worst[name] = float(gap)
        for wide in (False, True):
            head = layer_of(weight)
            head.quant_method = UnquantizedEmbeddingMethod()
            for n in TOKENS[1:]:
                hidden = torch.randn(n, IN).to(dtype)
                a = logits(LogitsProcessor, head, hidden, wide)
                c = logits(PackedLogits, head, hidden, wide)
                assert a.dtype == c.dtype
                worst[f"head {dtype} {wide} {n}"] = float((a.float() - c.float()).abs().max())
            packed[f"head {dtype} {wide}"] = hasattr(head, "coserve_packed")
    # Sizes of the default model, large enough that oneDNN divides its sums.
    shared: dict[str, int] = {}
    for dtype in (torch.float32, torch.bfloat16):
        for out_size, in_size in ((576, 1536), (960, 576), (3072, 576)):
            weight = torch.randn(out_size, in_size).to(dtype)
            if linear.can_pack(weight):
                weight_packed, x = linear.pack(weight), torch.randn(256, in_size).to(dtype)
                all_tokens = linear.product(x, weight_packed)
                shared[f"{dtype} {out_size} {in_size}"] = sum(
                    int((linear.product(x[:n], weight_packed) != all_tokens[:n]).sum())
                    for n in (1, 2, 3, 5, 8, 17, 32, 33, 64, 65, 100)
                )
    narrow = linear.can_pack(torch.zeros(1, 1, dtype=torch.bfloat16))
    found = {"worst": worst, "packed": packed, "bfloat16": narrow, "shared": shared}
    print("RESULTS " + json.dumps(found))


if __name__ == "__main__":
    main()
