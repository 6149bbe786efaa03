"""Runs every experiment on three seeds and writes docs/reproduction.md: `make reproduce`.

python -m bench.reproduce [--only NAME] [--seeds 1,2,3] [--dry]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

from bench.reproduce import bros, conserve, ecoserve, explain
from bench.reproduce.figure import Cell, Experiment, Explanation
from bench.reproduce.page import page, plots

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reproduction.md"
IMAGES = ROOT / "docs" / "images"
RESULTS = ROOT / "bench" / "results" / "reproduction.json"
EXPERIMENTS = (
    *conserve.EXPERIMENTS,
    *ecoserve.EXPERIMENTS,
    ecoserve.CAUSES,
    ecoserve.GIVING_WAY,
    *bros.EXPERIMENTS,
)
ALL: tuple[Experiment | Explanation, ...] = (*EXPERIMENTS, *explain.EXPLANATIONS)

Found = dict[str, dict[int, Cell]]
"""Figures by experiment and seed."""


def key(experiment: Experiment | Explanation) -> str:
    """Name of an experiment among all."""
    return f"{experiment.paper}: {experiment.name}"


def one(index: int, seed: int) -> tuple[int, int, Cell, float]:
    """One experiment on one seed and its processor time; what a process of the pool runs."""
    begun = time.process_time()
    return index, seed, ALL[index].run(seed), time.process_time() - begun


def main() -> int:
    """Run, write, and say how much is near."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--only", default="", help="experiments whose name holds this; the rest stay"
    )
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--dry", action="store_true", help="print, write nothing")
    args = parser.parse_args()
    seeds = [int(seed) for seed in args.seeds.split(",")]
    chosen = [i for i, one_of in enumerate(ALL) if args.only in key(one_of)]
    found = stored(seeds)
    for index in chosen:
        found.pop(key(ALL[index]), None)
    total_s = 0.0
    with ProcessPoolExecutor(min(2, os.cpu_count() or 1)) as pool:
        tasks = [pool.submit(one, index, seed) for seed in seeds for index in chosen]
        for task in as_completed(tasks):
            index, seed, cell, taken_s = task.result()
            made = found.setdefault(key(ALL[index]), {})
            made[seed] = cell
            if not args.dry:
                write(found, seeds)  # what is there so far
            total_s += taken_s
            sys.stderr.write(f"{key(ALL[index])}, seed {seed}: {taken_s:.0f} s\n")
    sys.stderr.write(f"{total_s:.0f} s of processors\n")
    sys.stdout.write(write(found, seeds, dry=args.dry))
    return 0


def stored(seeds: list[int]) -> Found:
    """What earlier runs on these seeds found; a run with --only leaves the rest as it was."""
    if not RESULTS.is_file():
        return {}
    kept: dict[str, dict[str, Cell]] = json.loads(RESULTS.read_text())
    known = {key(experiment) for experiment in ALL}
    return {
        name: {int(seed): cell for seed, cell in made.items() if int(seed) in seeds}
        for name, made in kept.items()
        if name in known
    }


def write(found: Found, seeds: list[int], *, dry: bool = False) -> str:
    """The page, its plots and the figures behind them; returns the page."""
    shown: list[tuple[Experiment, list[Cell]]] = []
    explained: list[tuple[Explanation, list[Cell]]] = []
    for one_of in ALL:
        made = found.get(key(one_of), {})
        cells = [made[seed] for seed in seeds if seed in made]
        if cells and isinstance(one_of, Explanation):
            explained.append((one_of, cells))
        elif cells and isinstance(one_of, Experiment):
            shown.append((one_of, cells))
    text = page(shown, seeds, explained)
    if not dry:
        PAGE.write_text(text)
        for name, drawn in plots(shown).items():
            (IMAGES / name).write_text(drawn)
        RESULTS.write_text(json.dumps(found, indent=1) + "\n")
    return text


if __name__ == "__main__":
    raise SystemExit(main())
