"""How well the step-time model describes steps it was not fitted to, table by table.

    python -m bench.latency_fit            # writes bench/results/latency_fit.json

A profile is fitted as an engine fits it, to the grid of `scheduling/fit.py`. The steps held out are
others: sizes, contexts and row counts between and beyond the grid's, drawn with a seed.

Quoted in docs/latency-model.md.
"""

from __future__ import annotations

import random
import sys
from typing import Any

from bench.paths import RESULTS
from bench.report import option_parser, write_cells
from engine_adapter.gpu_tables.gpu_table import (
    CUDA_GRAPH_BATCH_SIZES,
    DEFAULT_HOST_S,
    GpuTimes,
    gpu_table_names,
    load_gpu_table,
)
from engine_adapter.scheduling.fit import Sample, errors_by_kind, fit_model, make_grid

OUT = RESULTS / "latency_fit.json"
HELD_OUT = 600
CHUNK_TOKENS, SLOTS, LONGEST = 2048, 256, 8192


def held_out(times: GpuTimes, kv_tokens: int, seed: int) -> list[Sample]:
    """Steps of all three kinds that the pool holds."""
    dice = random.Random(seed)
    samples: list[Sample] = []
    while len(samples) < HELD_OUT:
        kind = len(samples) % 3
        num_rows = 0 if kind == 1 else round(2 ** dice.uniform(0, 7))
        length = round(2 ** dice.uniform(6, 13))
        decode = tuple(round(length * dice.uniform(0.5, 1.5)) for _ in range(num_rows))
        chunks = []
        if kind:
            size = round(2 ** dice.uniform(4, 11))
            chunks = [(size, dice.choice((0, 0, dice.randrange(4096))))]
        if sum(decode) + sum(p + c for p, c in chunks) > kv_tokens:
            continue
        samples.append(
            Sample(decode, tuple(chunks), times.step_s(chunks, len(decode), sum(decode)))
        )
    return samples


def measure(name: str, seed: int = 1) -> dict[str, Any]:
    """Errors in percent by kind of step, and the knees that were found."""
    table = load_gpu_table(name)
    times = GpuTimes(table, DEFAULT_HOST_S, CUDA_GRAPH_BATCH_SIZES)
    grid = make_grid(CHUNK_TOKENS, table.kv_tokens, SLOTS, min(LONGEST, table.max_context))
    samples = [
        Sample(c.decode, c.chunks, times.step_s(c.chunks, len(c.decode), sum(c.decode)))
        for c in grid
    ]
    model = fit_model(samples, CUDA_GRAPH_BATCH_SIZES)
    errors = errors_by_kind(model, held_out(times, table.kv_tokens, seed))
    return {
        "knees": {kind: getattr(model, kind).knee for kind in ("decode", "prefill", "mixed")},
        "errors": {
            str(kind): {
                "n": error.num_samples,
                "mean": round(100 * error.mean, 1),
                "p95": round(100 * error.p95, 1),
            }
            for kind, error in errors.items()
        },
    }


def main() -> int:
    """Print and keep the errors of every table."""
    option_parser(__doc__).parse_args()
    found = {name: measure(name) for name in gpu_table_names()}
    write_cells(OUT, found)
    print("held-out error %, mean / p95:")
    for name, entry in found.items():
        told = "  ".join(f"{k} {e['mean']} / {e['p95']}" for k, e in entry["errors"].items())
        print(f"{name:26} {told}  knees {list(entry['knees'].values())}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
