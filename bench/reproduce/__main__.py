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

from bench.reproduce import bros, conserve, ecoserve
from bench.reproduce.figure import Cell, Experiment
from bench.reproduce.page import page, plots

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reproduction.md"
IMAGES = ROOT / "docs" / "images"
RESULTS = ROOT / "bench" / "results" / "reproduction.json"
ALL = (*conserve.EXPERIMENTS, *ecoserve.EXPERIMENTS, ecoserve.CAUSES, *bros.EXPERIMENTS)


def key(experiment: Experiment) -> str:
    """Name of an experiment among all."""
    return f"{experiment.paper}: {experiment.name}"


def one(index: int, seed: int) -> tuple[int, int, Cell, float]:
    """One experiment on one seed; what a process of the pool runs."""
    begun = time.monotonic()
    return index, seed, ALL[index].run(seed), time.monotonic() - begun


def main() -> int:
    """Run, write, and say how much is near."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="experiments whose name holds this")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--dry", action="store_true", help="print, write nothing")
    args = parser.parse_args()
    seeds = [int(seed) for seed in args.seeds.split(",")]
    chosen = [i for i, one_of in enumerate(ALL) if args.only in key(one_of)]
    begun = time.monotonic()
    cells: dict[int, dict[int, Cell]] = {index: {} for index in chosen}
    with ProcessPoolExecutor(min(2, os.cpu_count() or 1)) as pool:
        tasks = [pool.submit(one, index, seed) for seed in seeds for index in chosen]
        for task in as_completed(tasks):
            index, seed, cell, taken_s = task.result()
            cells[index][seed] = cell
            if not args.dry:
                write(cells, seeds, time.monotonic() - begun)  # what is there so far
            sys.stderr.write(f"{key(ALL[index])}, seed {seed}: {taken_s:.0f} s\n")
    found = write(cells, seeds, time.monotonic() - begun, dry=args.dry)
    sys.stdout.write(found)
    return 0


def write(
    cells: dict[int, dict[int, Cell]], seeds: list[int], taken_s: float, *, dry: bool = False
) -> str:
    """The page, its plots and the figures behind them; returns the page."""
    found = [
        (ALL[index], [made[seed] for seed in seeds if seed in made])
        for index, made in cells.items()
        if made
    ]
    text = page(found, seeds, taken_s)
    if not dry:
        PAGE.write_text(text)
        for name, drawn in plots(found).items():
            (IMAGES / name).write_text(drawn)
        kept = {key(experiment): made for experiment, made in found}
        RESULTS.write_text(json.dumps({"seeds": seeds, "cells": kept}, indent=1) + "\n")
    return text


if __name__ == "__main__":
    raise SystemExit(main())
