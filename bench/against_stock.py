"""Every policy beside SGLang's own priorities at their best: four devices, six loads, simulated.

    python -m bench.against_stock                  # half an hour on two cores
    python -m bench.against_stock --seconds 200    # begins nothing new after that; call it again

Chat, batches, windows and ratios are those of bench/cells.py. Stock's setting, five chunk
sizes with and without mixing, is chosen for each device and load by P90 of first tokens on a seed
of its own, and shown on three others; so is the best of those that mix, whose gaps are shorter.
Writes bench/results/against_stock.json cell by cell, and prints a table of it, with what was asked.

Quoted in docs/benchmark-coserve-details.md and docs/scheduler-figures.md.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path
from statistics import mean

from bench.cells import (
    DEVICES,
    FOR_RULES,
    SEEDS,
    TRACES,
    WITH_PACE,
    Case,
    Cell,
    System,
    Systems,
    averages,
    cell_parser,
    run_case,
    show,
)
from bench.paths import RESULTS
from bench.report import write_cells

OUT = RESULTS / "against_stock.json"
LOADS = (*TRACES, "gamma", "on-off")
CHOICE_SEED = 201
STOCK, OURS = "sglang_priority", "conserve_v2"
BEST, MIXED = "stock at its best", "stock, mixing"
SETTINGS = tuple(
    f"{chunk}{mixed}" for chunk in (256, 512, 1024, 2048, 4096) for mixed in ("", "+mixed")
)
OTHERS = ("non_preemptive", "sarathi_p", "conserve_v1", OURS)
IN_TIME = ("ttft_ok_125", "gap_ok_125")
ASKED = {"ttft_s": 1.10, "gap_s": 1.10, "tpot_s": 1.3}


def stock_systems() -> Systems:
    """Stock in every setting; `non_preemptive` is what offline tokens are a share of."""
    settings = {f"{STOCK}@{setting}": System(STOCK) for setting in SETTINGS}
    return {"non_preemptive": System("non_preemptive"), **settings}


def shown_systems(choice: Cell) -> Systems:
    """Those that are compared, with stock as it was chosen."""
    made = {name: System(name) for name in OTHERS}
    made[f"{OURS}{WITH_PACE}"] = System(OURS)
    settings = chosen(choice)
    chunk = settings[BEST].partition("@")[2].partition("+")[0]
    made[f"sglang_no_preemption@{chunk}"] = System("sglang_no_preemption")
    return {**made, **dict.fromkeys(settings.values(), System(STOCK))}


def best_setting(choice: Cell, ending: str = "") -> str:
    """Stock's system with the least P90 of first tokens; of equal ones, the larger harvest."""
    rows: dict[str, dict[str, float]] = {
        name: row
        for name, row in choice["systems"].items()
        if name.startswith(STOCK) and name.endswith(ending)
    }
    return min(rows, key=lambda name: (round(rows[name]["ttft_p90_s"], 2), -rows[name]["offline"]))


def chosen(choice: Cell) -> dict[str, str]:
    """Stock's systems by why they were chosen; a cell may have noted what it was run with."""
    noted: dict[str, str] | None = choice.get("chosen")
    return noted or {BEST: best_setting(choice), MIXED: best_setting(choice, "+mixed")}


def find(cells: list[Cell], device: str, load: str, seeds: tuple[int, ...] = SEEDS) -> list[Cell]:
    """Cells of one device and load."""
    return [cell for cell in cells if cell["case"] in [[device, load, seed] for seed in seeds]]


def todo(cells: list[Cell], devices: list[str], loads: list[str]) -> Iterator[tuple[Case, Systems]]:
    """What can be run now: a choice, or what it has been made for; asked again after each cell."""
    for device in devices:
        for load in loads:
            choice = find(cells, device, load, (CHOICE_SEED,))
            if not choice:
                yield Case(device, load, CHOICE_SEED, **FOR_RULES), stock_systems()
                continue
            for seed in SEEDS:
                if not find(cells, device, load, (seed,)):
                    yield Case(device, load, seed), shown_systems(choice[0])


def run_all(cells: list[Cell], args: argparse.Namespace) -> None:
    """Run what is missing until it is all there or the time is up; write after each cell."""
    devices, loads = args.devices.split(","), args.loads.split(",")
    until_s = time.monotonic() + args.seconds
    running: dict[Future[Cell], Case] = {}
    with ProcessPoolExecutor(args.processes) as pool:
        while True:
            for case, systems in todo(cells, devices, loads):
                if len(running) >= args.processes or time.monotonic() > until_s:
                    break
                if case not in running.values():
                    running[pool.submit(run_case, case, args.workloads, systems)] = case
            if not running:
                return
            for done in wait(running, return_when=FIRST_COMPLETED).done:
                cells.append(done.result())
                print(running.pop(done), flush=True)
            cells.sort(key=lambda cell: cell["case"])
            write_cells(args.out, cells)


def renamed(cells: list[Cell], choices: list[Cell]) -> list[Cell]:
    """The cells with stock's systems named by why they were chosen."""
    made = []
    for cell in cells:
        choice = next(one for one in choices if one["case"][:2] == cell["case"][:2])
        rows = {name.partition("@")[0]: row for name, row in cell["systems"].items()}
        rows.pop(STOCK, None)
        for name, setting in chosen(choice).items():
            if setting in cell["systems"]:
                rows[name] = cell["systems"][setting]
        made.append({**cell, "systems": rows})
    return made


def compare(cells: list[Cell]) -> dict[str, dict[str, float]]:
    """Means over cells by system that all of them have; offline as a share of non-preemptive's."""
    shared = [name for name in cells[0]["systems"] if all(name in one["systems"] for one in cells)]
    return {name: averages(cells, name) for name in shared}


def mark(number: float, *, missed: bool, percent: bool = False) -> str:
    """A figure of a table; misses are bold."""
    text = f"{number:.0%}".replace("%", " %") if percent else f"{number:.2f}"
    return f"**{text}**" if missed else text


def asked_and_seen(seen: dict[str, dict[str, float]], least: float) -> str:
    """Ours over chat alone, and its harvest; differences below what is printed are none."""
    ours = {key: round(value, 2) for key, value in seen[OURS].items()}
    parts = [mark(ours[key], missed=ours[key] > asked) for key, asked in ASKED.items()]
    share = mark(ours["offline"], missed=ours["offline"] < least, percent=True)
    return " · ".join([*parts, share])


def beside(seen: dict[str, dict[str, float]], system: str) -> tuple[str, bool]:
    """Ours over a system's: first tokens, gaps, offline work; and whether it wins all three."""
    ratios = [
        round(seen[OURS][key] / seen[system][key], 2) for key in ("ttft_s", "gap_s", "offline")
    ]
    lost = [ratios[0] > 1.0, ratios[1] > 1.0, ratios[2] < 1.0]
    parts = [mark(ratio, missed=is_lost) for ratio, is_lost in zip(ratios, lost, strict=True)]
    return " · ".join(parts), not any(lost)


def tables(cells: list[Cell], choices: list[Cell], devices: Sequence[str]) -> list[str]:
    """What was asked and seen, and ours beside both of stock: loads down, devices across.

    Args:
        cells: What was run; what was not has a dash.
        choices: The cells in which stock's settings were chosen.
        devices: Those that are shown.
    """
    head = f"| | {' | '.join(device.split('-')[0].upper() for device in devices)} |"
    lines: dict[str, list[str]] = {
        what: [head, "|---" * (len(devices) + 1) + "|"]
        for what in ("P99, and offline", BEST, MIXED)
    }
    wins = dict.fromkeys((BEST, MIXED), 0)
    num_shown = 0
    for load in (*LOADS, "mean"):
        row: dict[str, list[str]] = {what: [] for what in lines}
        for device in devices:
            some = [
                cell
                for one in (LOADS if load == "mean" else (load,))
                for cell in renamed(
                    find(cells, device, one), find(choices, device, one, (CHOICE_SEED,))
                )
            ]
            if not some:
                for parts in row.values():
                    parts.append("–")
                continue
            num_shown += load != "mean"
            seen = compare(some)
            least = 0.8 if device.startswith("cpu") else 0.9
            row["P99, and offline"].append(asked_and_seen(seen, least))
            for system in (BEST, MIXED):
                text, won = beside(seen, system) if system in seen else ("–", False)
                row[system].append(text)
                wins[system] += won and load != "mean"
        for what, parts in row.items():
            lines[what].append(f"| {load} | {' | '.join(parts)} |")
    for system, num in wins.items():
        lines[system].append(f"{num} of {num_shown} win all three")
    return [line for what, some in lines.items() for line in (what, "", *some, "")]


def show_means(cells: list[Cell], choices: list[Cell], devices: Sequence[str]) -> None:
    """Every system's means on each of the devices, and on all of them."""
    for what in (*devices, "all"):
        pairs = [(device, load) for device in devices for load in LOADS if what in (device, "all")]
        some = renamed([cell for pair in pairs for cell in find(cells, *pair)], choices)
        if not some:
            continue
        print(f"\n{what}, {len(some)} cells")
        for name, found in compare(some).items():
            show(name, found)
        ours = [cell["systems"][OURS] for cell in some]
        late = [mean(row.get(key, 0.0) for row in ours) for key in IN_TIME]
        print(f"  {OURS} at 1.25 times the targets {late[0]:.1f} {late[1]:.1f}")


def main() -> int:
    """Run, then print every device's means and the table."""
    parser = cell_parser(__doc__, loads=LOADS)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    cells: list[Cell] = json.loads(args.out.read_text()) if args.out.exists() else []
    run_all(cells, args)
    choices = [cell for cell in cells if cell["case"][2] == CHOICE_SEED]
    show_means(cells, choices, DEVICES)
    for choice in choices:
        settings = (name.partition("@")[2] for name in chosen(choice).values())
        print("chosen", *choice["case"][:2], *settings)
    missing = sum(1 for _ in todo(cells, list(DEVICES), list(LOADS)))
    if not missing:
        print("\n" + "\n".join(tables(cells, choices, DEVICES)))
    print(f"\n{missing} cells missing" if missing else "\nall cells are there")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
