"""`python -m tests.chaos [--kills N] [--seed N] [--engine fake|real] [--save]`."""

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
from tests.chaos.victims import plan

FAKE_KILLS, REAL_KILLS = 200, 8
REAL_LINES = 400


def main() -> int:
    """Run, print, and with `--save` write `bench/results/chaos.json` (or chaos_real_engine)."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, help="how many (200; 8 with the real engine)")
    parser.add_argument("--seed", type=int, default=None, help="of the order and the pauses")
    parser.add_argument("--engine", choices=("fake", "real"), default="fake")
    parser.add_argument("--save", action="store_true", help="write the file of results")
    options = parser.parse_args()
    real = options.engine == "real"
    num_kills = options.kills or (REAL_KILLS if real else FAKE_KILLS)
    seed = secrets.randbits(32) if options.seed is None else options.seed
    lines = {"num_lines": REAL_LINES} if real else {}
    setting = Setting(seed=seed, real=real, **lines)
    print(f"seed {seed}: {num_kills} kills, engine {options.engine}", flush=True)
    started = time.monotonic()
    deaths, findings = asyncio.run(run(setting, plan(num_kills, random.Random(seed))))
    told = figures.summary(deaths) | {"wall_s": round(time.monotonic() - started, 1)}
    print(figures.table(told))
    print(asdict(findings))
    wrong = figures.missed(told, findings)
    print("MISSED: " + "; ".join(wrong) if wrong else "every line once, nothing run again")
    if options.save:
        name = "chaos_real_engine" if real else "chaos"
        print("written:", figures.write(name, asdict(setting), deaths, told, findings).name)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
