"""SGLang plugin with the fixes a CPU engine needs; its entry point exists only on such hosts.

SGLang logs and swallows a plugin's exceptions, so what cannot be fixed ends the process.
"""

from __future__ import annotations

import functools
import os
import sys
from importlib.metadata import version
from typing import Any

from engine_adapter.sglang.versions.promises import changed, promises_for
from engine_adapter.sglang.versions.uses import REPLACED_ON_CPU

EXIT_UNFIXED = 78

LOOKED_UP = (
    "fused_sigmoid_mul_cpu",
    "fused_qk_gemma_rmsnorm_cpu",
    "fused_qk_gemma_rmsnorm_with_gate_cpu",
    "fused_qkvzba_split_reshape_cat_contiguous_cpu",
)
_declared: list[Any] = []


@functools.cache  # once a process: what was replaced has another source
def register() -> None:
    """Apply every fix; ends the process if SGLang is not what the fixes were written for."""
    try:
        if unlike := unlike_signed():
            give_up("; ".join(unlike))
        _one_thread()
        _forks()
        _looked_up()
        _grammar_mask()
        _paged_allocator()
        _attention()
        _linear()
    except (ImportError, AttributeError) as error:
        give_up(error)


def unlike_signed() -> list[str]:
    """One sentence for each function that is not as in the signed release."""
    release = version("sglang")
    promised = promises_for(release)
    if promised is None:
        return [f"no release like SGLang {release} is signed"]
    texts = {one: promised.fixed.get(one, "") for one in REPLACED_ON_CPU}
    return [f"the source of {one} changed: read it again" for one in changed(texts)]


def give_up(why: object) -> None:
    """End the process: SGLang would swallow an exception and serve without the fixes."""
    sys.stderr.write(f"coserve: CPU fixes do not fit this SGLang: {why}\n")
    sys.stderr.flush()
    os._exit(EXIT_UNFIXED)


def _one_thread() -> None:
    """Two OpenMP threads collapse when the cores are shared with the rest of the stack."""
    import torch

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))


def _forks() -> None:
    """The scheduler and the detokenizer are forks: spawned, each would import SGLang once more.

    It is safe here: the process has no second thread yet, and no CUDA, which outlives no fork.
    """
    import multiprocessing

    multiprocessing.set_start_method("fork", force=True)
    # SGLang asks for spawned ones just before it starts them.
    multiprocessing.set_start_method = _keep_start_method


def _keep_start_method(method: str | None, force: bool = False) -> None:
    """In the place of `multiprocessing.set_start_method`."""


def _looked_up() -> None:
    """Operators that SGLang's module of Qwen 3.5 asks for while it is loaded, declared alone.

    Nothing here calls them. Without them that import fails and takes the image processors of all of
    Qwen's models along.
    """
    import torch

    library = torch.library.Library("sgl_kernel", "FRAGMENT")
    for name in LOOKED_UP:
        if not hasattr(torch.ops.sgl_kernel, name):
            library.define(f"{name}(Tensor x) -> Tensor")
    _declared.append(library)  # the declarations live as long as the object


def _grammar_mask() -> None:
    """Structured output: stock SGLang raises on a CPU tensor, which ends the whole engine."""
    from sglang.srt.constrained import xgrammar_backend

    xgrammar_backend.XGrammarGrammar.apply_vocab_mask = staticmethod(_apply_vocab_mask)
    xgrammar_backend.XGrammarGrammarBackend.apply_vocab_mask = staticmethod(_apply_vocab_mask)


def _apply_vocab_mask(logits: Any, vocab_mask: Any) -> None:
    """Mask `logits` [rows, vocab] in place by the packed bits in `vocab_mask` [rows, words]."""
    from xgrammar import apply_token_bitmask_inplace

    if logits.dtype.itemsize == 4:
        apply_token_bitmask_inplace(logits, vocab_mask)
        return
    wide = logits.float()  # xgrammar's CPU kernel reads float32 only
    apply_token_bitmask_inplace(wide, vocab_mask)
    logits.copy_(wide)


class _Launchable:
    """A function in the shape of a Triton kernel: `kernel[grid](...)`."""

    def __init__(self, run: Any) -> None:
        self._run = run

    def __getitem__(self, grid: object) -> Any:
        return self._run


def _paged_allocator() -> None:
    """Page sizes above one: SGLang's own plain-torch twin stands in for its Triton kernels."""
    from sglang.srt.mem_cache.allocator import paged

    if hasattr(paged, "current_platform"):
        return  # SGLang takes its twin by itself

    naive = paged.alloc_extend_naive

    def extend(
        prefix: Any, seq: Any, last: Any, free: Any, out: Any, _rows: int, page_size: int
    ) -> None:
        naive(prefix.long(), seq.long(), last.long(), free, out, page_size, "cpu")

    def decode(seq: Any, last: Any, free: Any, out: Any, _rows: int, page_size: int) -> None:
        naive(seq.long() - 1, seq.long(), last.long(), free, out, page_size, "cpu")

    paged.alloc_extend_kernel = _Launchable(extend)
    paged.alloc_decode_kernel = _Launchable(decode)


def _attention() -> None:
    """Steps of prompts and decoding requests: SGLang's cost grows with the square of a context."""
    from sglang.srt.layers.attention.torch_native_backend import TorchNativeAttnBackend

    from engine_adapter.cpu_compat import attention

    attention.install(TorchNativeAttnBackend)


def _linear() -> None:
    """Weights in the layout that products read, so that it is not made anew in every step."""
    from sglang.srt.layers.logits_processor import LogitsProcessor
    from sglang.srt.layers.quantization.unquant import UnquantizedLinearMethod

    from engine_adapter.cpu_compat import linear

    linear.install(UnquantizedLinearMethod, LogitsProcessor)
