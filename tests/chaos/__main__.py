"""`python -m tests.chaos [--kills N] [--seed N] [--engine fake|real|vllm] [--kind K] [--save]`."""

from __future__ import annotations

import argparse
import asyncio
import random
import secrets
import sys
import time
from dataclasses import asdict

from tests.chaos import figures
from tests.chaos.suite import Setting, run
from tests.chaos.victims import Kind, plan

FAKE_KILLS, REAL_KILLS = 200, 13
REAL_LINES = 200
RESULTS = {"fake": "chaos", "real": "chaos_real_engine", "vllm": "chaos_vllm"}


def main() -> int:
    """Run, print, and with `--save` write the file of `RESULTS` in bench/results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, help="how many (200; 13 with the real engine)")
    parser.add_argument("--seed", type=int, default=None, help="of the order and the pauses")
    parser.add_argument("--engine", choices=("fake", "real", "vllm"), default="fake")
    parser.add_argument("--kind", help="only this one, as in the table")
    parser.add_argument("--save", action="store_true", help="write the file of results")
    options = parser.parse_args()
    real = options.engine != "fake"
    num_kills = options.kills or (REAL_KILLS if options.engine == "real" else FAKE_KILLS)
    seed = secrets.randbits(32) if options.seed is None else options.seed
    lines = {"num_lines": REAL_LINES} if real else {}
    setting = Setting(seed=seed, engine=options.engine, **lines)
    print(f"seed {seed}: {num_kills} kills, engine {options.engine}", flush=True)
    started, rng = time.monotonic(), random.Random(seed)
    kinds = [Kind(options.kind)] * num_kills if options.kind else plan(num_kills, rng, real=real)
    deaths, findings = asyncio.run(run(setting, kinds))
    told = figures.summary(deaths) | {"wall_s": round(time.monotonic() - started, 1)}
    print(figures.table(told))
    print(asdict(findings))
    wrong = figures.missed(told, findings)
    print("MISSED: " + "; ".join(wrong) if wrong else "every line once, nothing run again")
    if options.save:
        name = RESULTS[options.engine]
        print("written:", figures.write(name, asdict(setting), deaths, told, findings).name)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
