"""The shipped GPU tables against measured end-to-end runs of SGLang.

    python -m bench.gpu_anchors

`silicon_sample.csv` of aiconfigurator-core holds runs somebody measured: prompt and answer length,
requests at once, tensor parallelism, and the mean time to first token and per output token. 72 of
them are SGLang on H100s with Qwen3-32B on 2, 4 and 8 GPUs; each is one wave of requests that start
together. The wave is computed step by step from the table (prompts in chunks of 8,192, then decode
steps of all rows) for several host constants. The target is the mean absolute error of the time a
whole request takes, at the constant that ships.

Quoted in docs/gpu-tables.md.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.report import at_most, option_parser, report
from engine_adapter.gpu_tables.gpu_table import DEFAULT_HOST_S, GpuTimes, load_gpu_table

ANCHORS = Path(__file__).parents[2] / "shared" / "workloads" / "anchors" / "silicon_sample.csv"
CHUNK_TOKENS = 8192
HOSTS_S = (0.0, 0.001, 0.002, 0.003)
LIMIT_PERCENT = 5.0
MOST_TOKENS = 150_000
"""Waves that outgrow the KV of two H100s ran as several; they are left out at tp 2."""


@dataclass(frozen=True, slots=True)
class Anchor:
    """One measured run; seconds."""

    tp: int
    input_tokens: int
    output_tokens: int
    at_once: int
    ttft_s: float
    tpot_s: float

    @property
    def request_s(self) -> float:
        return self.ttft_s + (self.output_tokens - 1) * self.tpot_s


def read_anchors(path: Path) -> list[Anchor]:
    """The SGLang runs on H100s with Qwen3-32B and more than one GPU."""
    with path.open(newline="") as file:
        rows = [
            row
            for row in csv.DictReader(file)
            if (row["system"], row["backend"], row["mode"], row["model_path"])
            == ("h100_sxm", "sglang", "agg", "Qwen/Qwen3-32B")
            and float(row["tp_size"] or 0) > 1
        ]
    return [
        Anchor(
            int(float(row["tp_size"])),
            int(float(row["isl"])),
            int(float(row["osl"])),
            int(float(row["batch_size"])),
            float(row["silicon_ttft_ms"]) / 1e3,
            float(row["silicon_tpot_ms"]) / 1e3,
        )
        for row in rows
    ]


def wave(times: GpuTimes, anchor: Anchor) -> tuple[float, float]:
    """Mean TTFT and TPOT of requests that start together: all prompts first, as SGLang does."""
    now_s = 0.0
    first: list[float] = []
    left = [anchor.input_tokens] * anchor.at_once
    begun = 0
    while begun < anchor.at_once:
        room = CHUNK_TOKENS
        chunks: list[tuple[int, int]] = []
        done = 0
        while room and begun < anchor.at_once:
            taken = min(room, left[begun])
            chunks.append((taken, anchor.input_tokens - left[begun]))
            left[begun] -= taken
            room -= taken
            if not left[begun]:
                begun += 1
                done += 1
        now_s += times.step_s(chunks)
        first += [now_s] * done
    for number in range(1, anchor.output_tokens):
        context = anchor.at_once * (anchor.input_tokens + number)
        now_s += times.step_s((), anchor.at_once, context)
    tpot = [(now_s - at_s) / (anchor.output_tokens - 1) for at_s in first]
    return _mean(first), _mean(tpot)


def errors(anchors: Sequence[Anchor], host_s: float) -> dict[str, Any]:
    """Relative errors over all anchors, in per cent."""
    ttft, tpot, request = [], [], []
    for anchor in anchors:
        times = GpuTimes(load_gpu_table(f"h100-qwen3-32b-tp{anchor.tp}"), host_s)
        ttft_s, tpot_s = wave(times, anchor)
        ttft.append(ttft_s / anchor.ttft_s - 1)
        tpot.append(tpot_s / anchor.tpot_s - 1)
        request_s = ttft_s + (anchor.output_tokens - 1) * tpot_s
        request.append(request_s / anchor.request_s - 1)
    return {
        name: in_percent(found)
        for name, found in (("request", request), ("tpot", tpot), ("ttft", ttft))
    }


def in_percent(relative: Sequence[float]) -> dict[str, float]:
    """Relative errors as they are told."""
    return {
        "mean_absolute": round(100 * _mean([abs(e) for e in relative]), 2),
        "mean_signed": round(100 * _mean(relative), 2),
        "largest": round(100 * max(abs(e) for e in relative), 2),
    }


def main(argv: list[str] | None = None) -> int:
    """Compare, print, write `bench/results/gpu_anchors.json`."""
    parser = option_parser(__doc__)
    parser.add_argument("--anchors", type=Path, default=ANCHORS, help="silicon_sample.csv")
    path = parser.parse_args(argv).anchors
    if not path.is_file():
        print(f"no measured runs at {path}: give --anchors, a copy is in aiconfigurator-core")
        return 2
    anchors = read_anchors(path)
    fitting = [a for a in anchors if a.tp > 2 or a.at_once * a.input_tokens <= MOST_TOKENS]
    measured: dict[str, Any] = {"runs": len(anchors), "runs_compared": len(fitting)}
    for host_s in HOSTS_S:
        measured[f"host {host_s * 1e3:.0f} ms, error in %"] = errors(fitting, host_s)
    for tp in sorted({anchor.tp for anchor in fitting}):
        group = [anchor for anchor in fitting if anchor.tp == tp]
        measured[f"tp{tp} ({len(group)} runs), error in %"] = errors(group, DEFAULT_HOST_S)
    figure = "request_time_mean_absolute_percent"
    measured[figure] = errors(fitting, DEFAULT_HOST_S)["request"]["mean_absolute"]
    return report("gpu_anchors", measured, {figure: at_most(LIMIT_PERCENT)})


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


if __name__ == "__main__":
    sys.exit(main())
