"""What this package takes for granted about SGLang, checked before anything is replaced.

An upgrade of SGLang then ends with a list of what to read again, instead of a wrong answer.
"""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version

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
    "sglang.srt.managers.tokenizer_manager.TokenizerManager.detokenize_logprob_tokens": (
        "self", "token_logprobs_val", "token_logprobs_idx", "decode_to_text",
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
            "run `make setup-engine`, which installs it"
        ]
    return [sentence for symbol in SIGNATURES if (sentence := _difference(symbol))]


def _difference(symbol: str) -> str:
    try:
        parameters = tuple(inspect.signature(pkgutil.resolve_name(symbol)).parameters)
    except (ImportError, AttributeError) as error:
        return f"{symbol} is not there ({error})"
    wanted = SIGNATURES[symbol]
    return "" if parameters == wanted else f"{symbol} takes {parameters}, expected {wanted}"
