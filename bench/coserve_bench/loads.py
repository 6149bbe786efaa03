"""The load of a comparison, the same for every system of a repeat."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.coserve_bench.options import Options
from bench.coserve_bench.systems import System
from lab.workload.arrivals import gamma_arrivals, on_off_arrivals
from lab.workload.harness import Load
from lab.workload.lengths import Lengths, PromptMaker, fixed_lengths, read_lengths, sampled_lengths
from lab.workload.traces import TraceRequest, clip_lengths, read_trace, stretch, window


@dataclass(frozen=True, slots=True)
class OnlineTrace:
    """Online requests before they are stretched, and what was clipped off them."""

    requests: list[TraceRequest]
    num_inputs_clipped: int = 0
    num_outputs_clipped: int = 0


def online_trace(options: Options, repeat: int, factor: float) -> OnlineTrace:
    """The online requests of one window, stretched by ``factor``.

    A trace gives every repeat the same requests; generated arrivals differ between repeats.
    """
    if options.trace is None:
        seed = options.seed + 1000 * repeat
        if options.on_off_s:
            arrivals = on_off_arrivals(
                options.rate_per_s / factor, options.on_off_s, seed, options.cv
            )
        else:
            arrivals = gamma_arrivals(
                options.rate_per_s / factor, options.cv, options.duration_s, seed
            )
        requests = [
            TraceRequest(at_s, options.input_tokens, options.output_tokens) for at_s in arrivals
        ]
        return OnlineTrace(requests)
    cut = window(read_trace(options.trace), options.trace_start_s, options.duration_s / factor)
    # Half of the pool bounds a request, so that two of the longest still fit side by side.
    longest = min(context_tokens(options.model_dir), options.kv_tokens) // 2
    clipped = clip_lengths(stretch(cut, factor), longest, longest // 2)
    return OnlineTrace(clipped.requests, clipped.num_inputs_clipped, clipped.num_outputs_clipped)


def mean_rate(online: list[TraceRequest], duration_s: float) -> float:
    """Requests per second of a window; of a trace that ends inside it, as long as it lasts."""
    num = len(online)
    # Requests that all arrive at once have no rate of their own.
    lasts_s = online[-1].arrival_s * num / (num - 1) if num > 1 else 0.0
    return num / min(duration_s, lasts_s or duration_s)


def load_of(options: Options, system: System, online: list[TraceRequest], repeat: int) -> Load:
    """What is sent to one system in one repeat."""
    return Load(
        online=online,
        offline=offline_of(options, repeat) if system.offline else None,
        num_outstanding=options.outstanding,
        duration_s=options.duration_s,
        lead_s=options.lead_s if system.offline else 1.0,
        send_priority=system.priority,
    )


def prompt_maker(options: Options) -> PromptMaker:
    """Prompts for the model's vocabulary."""
    return PromptMaker(int(_config(options.model_dir)["vocab_size"]), options.seed)


def context_tokens(model_dir: Path) -> int:
    """Longest sequence of the model."""
    return int(_config(model_dir).get("max_position_embeddings", 2048))


def offline_of(options: Options, repeat: int) -> Iterator[Lengths]:
    """Lengths of the offline requests of a repeat, in the order they are sent."""
    if options.offline_lengths is None:
        return fixed_lengths(options.offline_input_tokens, options.offline_output_tokens)
    longest = min(context_tokens(options.model_dir), options.kv_tokens) // 2
    pairs = [
        (min(inputs, longest), min(max(1, outputs), longest // 2))
        for inputs, outputs in read_lengths(options.offline_lengths)
    ]
    return sampled_lengths(pairs, options.seed + repeat)


def _config(model_dir: Path) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((model_dir / "config.json").read_text())
    return config
