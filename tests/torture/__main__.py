"""`python -m tests.torture [--minutes N] [--seed N] [--engine fake|real] [--save]`."""

from __future__ import annotations

import argparse
import asyncio
import secrets
import sys
from dataclasses import replace

from tests.torture import figures
from tests.torture.suite import Setting, run

MINUTES = 60.0
REAL_LINES = 40


def main() -> int:
    """Run, print, and with `--save` write `bench/results/torture.json` (or torture_real_engine)."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=MINUTES, help="how long (60)")
    parser.add_argument("--seed", type=int, default=None, help="of the faults and the pauses")
    parser.add_argument("--engine", choices=("fake", "real"), default="fake")
    parser.add_argument("--save", action="store_true", help="write the file of results")
    options = parser.parse_args()
    real = options.engine == "real"
    seed = secrets.randbits(32) if options.seed is None else options.seed
    setting = Setting(seed=seed, duration_s=60 * options.minutes, real=real)
    if real:
        setting = replace(setting, num_lines=REAL_LINES, num_chatters=1)
    print(f"seed {seed}: {options.minutes:g} minutes, engine {options.engine}", flush=True)
    told = figures.summary(asyncio.run(run(setting)))
    print(figures.table(told))
    if options.save:
        name = "torture_real_engine" if real else "torture"
        print("written:", figures.write(name, setting, told).name)
    return 1 if told["broken"] else 0


if __name__ == "__main__":
    sys.exit(main())
