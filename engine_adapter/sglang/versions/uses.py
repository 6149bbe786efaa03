"""What the adapter uses of SGLang, read off the adapter's own syntax trees; nothing is imported.

Four things are found:

    from sglang… import name      the name has to be there, with its parameters; so has a name that
                                  stands in quotes, `"sglang.…"`
    def in a class of ours        that derives from SGLang's: the method is overridden; without a
                                  call of `super()` its text has to be the one that we read
    req.name, scheduler.name, …   an attribute of the class that the word stands for
    READ                          methods whose order of work the adapter relies on
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

ADAPTER: Final = Path(__file__).resolve().parents[2]
_M: Final = "sglang.srt.managers."
SCHEDULER: Final = _M + "scheduler.Scheduler"
REQ: Final = _M + "schedule_batch.Req"
BATCH: Final = _M + "schedule_batch.ScheduleBatch"
KV: Final = _M + "schedule_batch.ReqKvInfo"
FORWARD_BATCH: Final = "sglang.srt.model_executor.forward_batch_info.ForwardBatch"

WORDS: Final[Mapping[str, str]] = {
    "scheduler": SCHEDULER,
    "_scheduler": SCHEDULER,
    "s": SCHEDULER,
    "req": REQ,
    "kv": KV,
    "batch": BATCH,
    "decode_batch": BATCH,
    "forward_batch": FORWARD_BATCH,
}
"""What a variable of this name is, everywhere in the adapter."""

DERIVED: Final[Mapping[str, str]] = {
    "Scheduler": SCHEDULER,
    "ReportingScheduler": SCHEDULER,
    "SchedulerOutputStreamer": (
        _M + "scheduler_components.output_streamer.SchedulerOutputStreamer"
    ),
}
"""What our classes derive from, directly or through one of ours."""

_RESULTS: Final = _M + "scheduler_components.batch_result_processor.SchedulerBatchResultProcessor."
_BREAKABLE: Final = (
    "sglang.srt.model_executor.runner_backend_utils.breakable_cuda_graph.breakable_cuda_graph."
    "BreakableCUDAGraph."
)
ANSWERING: Final = frozenset({"logprobs.py"})
"""Used by the process that answers alone, which looks at it itself (`contract.ANSWERING`)."""

READ: Final = (
    SCHEDULER + "._get_new_batch_prefill_raw",
    SCHEDULER + ".update_running_batch",
    SCHEDULER + ".event_loop_overlap",
    SCHEDULER + ".event_loop_normal",
    SCHEDULER + ".is_fully_idle",
    SCHEDULER + ".init_deterministic_inference_config",
    BATCH + ".mix_with_running",
    BATCH + ".prepare_for_decode",
    BATCH + ".prepare_for_extend",
    REQ + ".reset_for_retract",
    REQ + ".init_next_round_input",
    _M + "schedule_batch.release_req",
    _RESULTS + "process_batch_result_prefill",
    _RESULTS + "process_batch_result_decode",
    _M + "scheduler_components.invariant_checker.SchedulerInvariantChecker"
    "._get_total_uncached_sizes",
    _BREAKABLE + "replay",
    "sglang.srt.mem_cache.radix_cache.RadixCache.cache_unfinished_req",
    "sglang.srt.mem_cache.radix_cache.RadixCache.cache_finished_req",
    "sglang.srt.mem_cache.radix_cache.RadixCache.checkpoint",
    "sglang.srt.models.llama.LlamaDecoderLayer.forward",
)
"""A family has some of them under another name; what it does not have is no promise of it."""


_ATTENTION: Final = "sglang.srt.layers.attention.torch_native_backend.TorchNativeAttnBackend."
_UNQUANTIZED: Final = "sglang.srt.layers.quantization.unquant.UnquantizedLinearMethod."
_GRAMMAR: Final = "sglang.srt.constrained.xgrammar_backend.XGrammarGrammar"
REPLACED_ON_CPU: Final = (
    _ATTENTION + "init_forward_metadata",
    _ATTENTION + "_run_sdpa_forward_extend",
    _ATTENTION + "_run_sdpa_forward_decode",
    _ATTENTION + "forward_extend",
    _ATTENTION + "forward_decode",
    _UNQUANTIZED + "process_weights_after_loading",
    _UNQUANTIZED + "apply",
    "sglang.srt.layers.logits_processor.LogitsProcessor._compute_lm_head",
    _GRAMMAR + ".apply_vocab_mask",
    _GRAMMAR + "Backend.apply_vocab_mask",
    "sglang.srt.mem_cache.allocator.paged.alloc_extend_naive",
)
"""What `cpu_compat` replaces: it has to be as it was in the signed release."""


@dataclass(slots=True)
class Uses:
    """What some files use.

    Attributes:
        names: Dotted names of functions, classes and constants.
        overridden: Dotted names of methods; whether ours calls the one it replaces.
        attributes: Attributes that are read or written, by the class they belong to.
    """

    names: set[str] = field(default_factory=set)
    overridden: dict[str, bool] = field(default_factory=dict)
    attributes: dict[str, set[str]] = field(default_factory=dict)


def files(family: str) -> list[Path]:
    """The files that run with a family's module."""
    versions = ADAPTER / "sglang/versions" / f"{family}.py"
    ours = [one for one in (ADAPTER / "sglang").glob("*.py") if one.name not in ANSWERING]
    parts = [*ours, *(ADAPTER / "cpu_compat").glob("*.py"), versions]
    return sorted(parts)


def uses_of(paths: Iterable[Path]) -> Uses:
    """What these files use of SGLang."""
    found = Uses()
    for path in paths:
        tree = ast.parse(path.read_text())
        found.names.update(_names(tree))
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                _add_class(found, node)
            elif isinstance(node, ast.Attribute) and (owner := WORDS.get(_word(node.value))):
                found.attributes.setdefault(owner, set()).add(node.attr)
    return found


def _names(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sglang"):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and _is_dotted(node.value):
            yield str(node.value).rstrip(".")


def _is_dotted(value: object) -> bool:
    if not isinstance(value, str) or " " in value:
        return False
    return value.startswith("sglang.srt.") and not value.startswith("sglang.srt.entrypoints.")


def _add_class(found: Uses, node: ast.ClassDef) -> None:
    base = next((DERIVED[_word(base)] for base in node.bases if _word(base) in DERIVED), None)
    if base is None:
        return
    own = set()
    for one in ast.walk(node):
        if isinstance(one, ast.FunctionDef):
            own.add(one.name)
        elif isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name):
            own.add(one.target.id)
    for one in node.body:
        if isinstance(one, ast.FunctionDef) and not one.name.startswith("__"):
            symbol = f"{base}.{one.name}"
            calls = _calls_super(one)
            found.overridden[symbol] = found.overridden.get(symbol, True) and calls
    read = {
        one.attr
        for one in ast.walk(node)
        if isinstance(one, ast.Attribute)
        and _word(one.value) == "self"
        and isinstance(one.ctx, ast.Load)
    }
    written = {
        one.attr
        for one in ast.walk(node)
        if isinstance(one, ast.Attribute)
        and _word(one.value) == "self"
        and isinstance(one.ctx, ast.Store)
    }
    found.attributes.setdefault(base, set()).update(read - own - written)


def _calls_super(function: ast.FunctionDef) -> bool:
    return any(
        isinstance(node, ast.Attribute)
        and node.attr == function.name
        and isinstance(node.value, ast.Call)
        and _word(node.value.func) == "super"
        for node in ast.walk(function)
    )


def _word(node: ast.AST) -> str:
    """The last name of an expression: ``scheduler`` of ``self.scheduler``."""
    return str(getattr(node, "attr", None) or getattr(node, "id", ""))
