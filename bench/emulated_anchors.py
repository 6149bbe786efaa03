"""The emulated device against measured end-to-end runs of SGLang on H100s.

    python -m bench.emulated_anchors        (8 minutes)

The same measured runs as in `bench.gpu_anchors`, of those the waves of 16 and of 64 requests that
two cores can follow: Qwen3-32B on 2, 4 and 8 H100s. Stock SGLang runs on the emulated device of
their table and gets each wave over HTTP, twice: with one token an answer, which gives the mean time
to first token, and with all of them, which gives the mean time of a request. Compared are these,
and the time of an output token in between. Asked are 15 %.

Quoted in docs/emulated-device.md.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import aiohttp

from bench.coserve_bench.engine_run import running_engine
from bench.coserve_bench.systems import find_system
from bench.gpu_anchors import ANCHORS, CHUNK_TOKENS, Anchor, in_percent, read_anchors
from bench.paths import ENGINE_PYTHON, MODEL_DIR
from bench.report import at_most, option_parser, report, scratch_folder
from engine_adapter.engine_process import EngineSettings
from engine_adapter.gpu_tables.gpu_table import load_gpu_table
from lab.emulated.model_dir import write_model_dir

AT_ONCE = {2: (16,), 4: (16, 64), 8: (16, 64)}
"""Waves that are run, by tensor parallelism: two GPUs hold no 64 long requests in one wave."""

LIMIT_PERCENT = 15.0
FIRST_TOKEN, VOCABULARY = 256, 40_000
TABLE = "h100-qwen3-32b-tp{}"


async def mean_seconds(url: str, anchor: Anchor, answer_tokens: int, dice: random.Random) -> float:
    """Send the wave; how long a request of it took."""

    async def one(session: aiohttp.ClientSession) -> float:
        prompt = [dice.randrange(FIRST_TOKEN, VOCABULARY) for _ in range(anchor.input_tokens)]
        sampling = {"max_new_tokens": answer_tokens, "ignore_eos": True, "temperature": 0}
        body = json.dumps({"input_ids": prompt, "sampling_params": sampling})
        await gate.wait()
        began_s = time.monotonic()
        async with session.post(f"{url}/generate", data=body, headers=headers) as answer:
            told = await answer.json()
        assert told["meta_info"]["completion_tokens"] == answer_tokens, told
        return time.monotonic() - began_s

    gate, headers = asyncio.Event(), {"content-type": "application/json"}
    connector, limit = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(total=300)
    async with aiohttp.ClientSession(connector=connector, timeout=limit) as session:
        waiting = [asyncio.ensure_future(one(session)) for _ in range(anchor.at_once)]
        await asyncio.sleep(0.1)  # every prompt is written
        gate.set()
        return sum(await asyncio.gather(*waiting)) / anchor.at_once


async def runs_of(tp: int, anchors: Sequence[Anchor], folder: Path) -> list[dict[str, Any]]:
    """The waves of one table on its emulated device, each beside what was measured."""
    table = TABLE.format(tp)
    settings = EngineSettings(
        python=ENGINE_PYTHON,
        model_dir=write_model_dir(load_gpu_table(table), MODEL_DIR, folder),
        port=0,
        dtype="bfloat16",
        kv_tokens=300_000,
        max_running=80,
        chunk_tokens=CHUNK_TOKENS,
        extra_args=("--load-format", "dummy"),
    )
    dice, found = random.Random(tp), []
    env = {"COSERVE_EMULATED": table}
    log = folder / f"{table}.log"
    async with running_engine(settings, find_system("online-only"), env, log) as engine:
        for anchor in anchors:
            ttft_s = await mean_seconds(engine.url, anchor, 1, dice)
            request_s = await mean_seconds(engine.url, anchor, anchor.output_tokens, dice)
            tpot_s = (request_s - ttft_s) / (anchor.output_tokens - 1)
            run = {
                "gpus": tp,
                "input_tokens": anchor.input_tokens,
                "output_tokens": anchor.output_tokens,
                "at_once": anchor.at_once,
                "ttft": _pair(ttft_s, anchor.ttft_s),
                "tpot": _pair(tpot_s, anchor.tpot_s),
                "request": _pair(request_s, anchor.request_s),
            }
            print(f"  {run}", flush=True)
            found.append(run)
    return found


def _pair(emulated_s: float, measured_s: float) -> dict[str, float]:
    return {
        "emulated_ms": round(1e3 * emulated_s, 2),
        "measured_ms": round(1e3 * measured_s, 2),
        "ratio": round(emulated_s / measured_s, 3),
    }


async def measure(anchors: Sequence[Anchor]) -> dict[str, Any]:
    """All of them, table by table."""
    runs: list[dict[str, Any]] = []
    with scratch_folder() as folder:
        for tp, sizes in AT_ONCE.items():
            chosen = [one for one in anchors if one.tp == tp and one.at_once in sizes]
            runs += await runs_of(tp, chosen, folder)
    measured: dict[str, Any] = {"runs_compared": len(runs)}
    for what in ("request", "tpot", "ttft"):
        found = in_percent([run[what]["ratio"] - 1 for run in runs])
        measured[f"{what}, error in %"] = found
        measured[f"{what}_mean_absolute_percent"] = found["mean_absolute"]
    return {**measured, "runs": runs}


def main(argv: list[str] | None = None) -> int:
    """Compare, print, write `bench/results/emulated_anchors.json`."""
    parser = option_parser(__doc__)
    parser.add_argument("--anchors", type=Path, default=ANCHORS, help="silicon_sample.csv")
    path = parser.parse_args(argv).anchors
    if not path.is_file():
        print(f"no measured runs at {path}: give --anchors, a copy is in aiconfigurator-core")
        return 2
    measured = asyncio.run(measure(read_anchors(path)))
    names = ("request", "tpot", "ttft")
    targets = {f"{what}_mean_absolute_percent": at_most(LIMIT_PERCENT) for what in names}
    return report("emulated_anchors", measured, targets)


if __name__ == "__main__":
    sys.exit(main())
