"""The cells of `bench.against_stock` in real SGLang on emulated devices, and simulated beside.

    python -m bench.emulated_table --devices h200-llama-3.1-8b --loads azure-conv,gamma

Chat, batches and stock's settings are those of `bench.against_stock`, one seed, 320 chats a cell.
Every system runs on the emulated device over HTTP, in virtual time, and in the simulator with the
same requests and targets. Systems of a cell run one by one, each for the targets that the first of
them, chat alone, has set; each takes a minute or more and is written as soon as it is there, to
bench/results/emulated_table.json. So a run that is ended goes on where it was: of cells that are
there only systems that they lack are run. Without anything left to run, prints the tables.

Quoted in docs/benchmark-coserve.md and docs/emulated-device.md.
"""

from __future__ import annotations

import csv
import json
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from itertools import islice
from pathlib import Path
from time import gmtime, strftime
from typing import Any

from bench.against_stock import (
    BEST,
    CHOICE_SEED,
    LOADS,
    MIXED,
    chosen,
    find,
    show_means,
    tables,
)
from bench.against_stock import OUT as SIMULATED
from bench.calibration import Run, beside, inside, simulated, without_overlap
from bench.cells import (
    DEVICES,
    ONLINE,
    OUTSTANDING,
    Case,
    Cell,
    offline_lengths,
    online_requests,
)
from bench.coserve_bench.compare import Comparison, run_to_end
from bench.coserve_bench.loads import offline_of, online_trace
from bench.coserve_bench.options import EMULATED, VIRTUAL, Options, parse_options
from bench.coserve_bench.systems import REFERENCE
from bench.paths import RESULTS
from bench.report import environment, option_parser, scratch_folder, write_cells
from engine_adapter.scheduling.policies.settings import Level
from lab.simulator.device import EngineSize, SimulatedDevice, find_device
from lab.workload.lengths import Lengths
from lab.workload.traces import HEADER, TraceRequest

OUT = RESULTS / "emulated_table.json"
PROFILES = Path(".coserve") / "bench" / "profiles"
"""Measured once on every device."""

EMULATED_DEVICES = DEVICES[:-1]
SEED = 101
NUM_DOCUMENTS = 20_000
LEAD = 2.0
"""Of the time that the prompts of all outstanding documents take alone: then slots are full, and
documents end one by one."""

OURS, STOCK, NO_PREEMPTION = "conserve-v2", "sglang-priority", "non-preemptive"
EARLY, JUST_IN_TIME = f"{OURS}-early", f"{OURS}-just-in-time"
OTHERS = NO_PREEMPTION, "sarathi-p", "conserve-v1"
SYSTEMS = (REFERENCE, OURS, EARLY, JUST_IN_TIME, "best", "mixing", *OTHERS)


def simulated_choice(device: str, load: str) -> dict[str, str]:
    """Stock's settings that the simulator chose, by why it did."""
    cells: list[Cell] = json.loads(SIMULATED.read_text())
    return chosen(find(cells, device, load, (CHOICE_SEED,))[0])


def systems_of(settings: dict[str, str], wanted: Sequence[str]) -> list[str]:
    """The benchmark's systems, `best` and `mixing` by stock's settings."""
    by_name = {"best": settings[BEST], "mixing": settings[MIXED]}
    named = [by_name.get(name, name).replace("sglang_priority", STOCK) for name in wanted]
    return list(dict.fromkeys(named))


def choices_of(cells: Iterable[Cell]) -> list[Cell]:
    """What the cells were run with, as the simulator's choices are kept."""
    return [{**cell, "case": [*cell["case"][:2], CHOICE_SEED]} for cell in cells]


def lead_s(case: Case, device: SimulatedDevice) -> float:
    """How long documents run before the first chat."""
    prompts = (inputs for inputs, _ in islice(offline_lengths(case), OUTSTANDING))
    return round(LEAD * sum(tokens * device.prompt_token_s(tokens) for tokens in prompts), 1)


def write(path: Path, header: Sequence[str], rows: Iterable[Sequence[float]]) -> None:
    """A CSV file as the benchmark reads them."""
    with path.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(header)
        out.writerows(rows)


def options_of(
    case: Case,
    device: SimulatedDevice,
    systems: list[str],
    folder: Path,
    targets: Sequence[str] = (),
) -> Options:
    """The benchmark's options for a cell; its trace and lengths are written to the folder.

    Targets are what online-only shows at P99, or given as the benchmark's own options.
    """
    online = online_requests(case, device, ONLINE)
    lead = lead_s(case, device)
    write(folder / "chats.csv", HEADER, [(r.arrival_s, *r_lengths(r)) for r in online])
    documents = islice(offline_lengths(case), NUM_DOCUMENTS)
    write(folder / "documents.csv", HEADER[1:], documents)
    limits = device.shape.limits
    return parse_options(
        [
            *("--device", f"{EMULATED}{case.device}", "--clock", VIRTUAL),
            *("--systems", ",".join(systems)),
            *("--online", str(folder / "chats.csv"), "--scale", "1"),
            *("--offline-lengths", str(folder / "documents.csv")),
            *("--outstanding", str(OUTSTANDING), "--slots", str(device.shape.total_slots)),
            *("--kv-tokens", str(device.shape.total_pages)),
            *("--chunk-tokens", str(limits.max_chunk_tokens)),
            *("--target-percentile", "0.99", "--repeats", "1", "--lead", str(lead)),
            *("--duration", str(online[-1].arrival_s + 0.001), "--out", str(folder / "out")),
            *("--profile-dir", str(PROFILES)),
            *targets,
        ]
    )


def r_lengths(request: TraceRequest) -> Lengths:
    """Prompt and answer of a request."""
    return request.input_tokens, request.output_tokens


def run_cell(
    case: Case, settings: dict[str, str], wanted: Sequence[str], targets: Sequence[str] = ()
) -> Cell:
    """One cell on the emulated device, then simulated; targets as in :func:`options_of`."""
    device = without_overlap(find_device(case.device, EngineSize()))
    systems = systems_of(settings, wanted)
    with scratch_folder() as folder:
        options = options_of(case, device, systems, folder, targets)
        comparison = Comparison(options)
        run_to_end(comparison)
        found = comparison.results()
        online = online_trace(options, 0, comparison.factor).requests
        run = Run(online, partial(offline_of, options, 0), comparison.targets[0])
        shown = found["systems"]
        pairs = {
            system: beside(shown[system], simulated(device, system, asdict(options), [run]))
            for system in shown
        }
    return {
        "case": [case.device, case.load, case.seed],
        "n": len(online),
        "duration_s": round(options.duration_s, 1),
        "targets_ms": found["environment"]["slo_ms"][0],
        "chosen": settings,
        "systems": {system: short(figures) for system, figures in shown.items()},
        "beside_simulated": pairs,
        "runs": dict.fromkeys(shown, run_of(environment())),
        "passes": {
            name.removesuffix("/0"): counts
            for name, counts in found["environment"].get("emulated_passes", {}).items()
        },
        "environment": environment(),
    }


def run_pieces(
    cells: list[Cell],
    case: Case,
    wanted: Sequence[str],
    targets: Sequence[str],
    ends_s: float,
    run: Callable[[Case, dict[str, str], Sequence[str], Sequence[str]], Cell],
) -> Iterator[None]:
    """Run what a cell lacks of the wanted systems, one by one; the cells are changed at each stop.

    Args:
        cells: All that are there.
        case: Which of them; it may not be there.
        wanted: Systems; the first one sets the targets of a cell that is not there.
        targets: Options that set them in place of it.
        ends_s: When no further one is begun, on the monotonic clock.
        run: Runs systems of a case with stock's settings and such options (:func:`run_cell`).
    """
    there = find(cells, case.device, case.load, (case.seed,))
    cell = there[0] if there else None
    settings = cell["chosen"] if cell else simulated_choice(case.device, case.load)
    names = lacking(cell, wanted) if cell else systems_of(settings, wanted)
    for name in names:
        if time.monotonic() > ends_s:
            return
        if cell is None:
            cell = run(case, settings, [name], targets)
            cells.append(cell)
        else:
            own = [f"--{of}-ms={value}" for of, value in cell["targets_ms"].items()]
            more = completed(cell, run(case, settings, [name], own))
            cells[cells.index(cell)] = cell = more
        yield


def run_of(where: dict[str, Any]) -> dict[str, Any]:
    """When and where a system was run: those of a cell need not have been run together."""
    today = strftime("%Y-%m-%d", gmtime())
    return {"commit": where["commit"], "load_1min": where["load_1min"], "date": today}


def lacking(cell: Cell, wanted: Sequence[str]) -> list[str]:
    """Those of the wanted systems that the cell has no figures of."""
    return [name for name in systems_of(cell["chosen"], wanted) if name not in cell["systems"]]


def comparable(cells: Iterable[Cell]) -> list[Cell]:
    """Those in ratios that have what all the others are set beside."""
    needed = {REFERENCE, OURS, NO_PREEMPTION}
    return [in_ratios(cell) for cell in cells if needed <= cell["systems"].keys()]


def completed(cell: Cell, more: Cell) -> Cell:
    """The cell with the systems that it lacked; what it had stays as it is."""
    parts = "systems", "beside_simulated", "runs", "passes"
    return {**cell, **{of: more.get(of, {}) | cell.get(of, {}) for of in parts}}


def short(figures: dict[str, Any]) -> dict[str, Any]:
    """What is kept of a system's figures."""
    names = ("n", "ttft_ms", "tbt_ms", "tpot_ms", "attainment", "offline_tokens_per_s")
    kept = {name: figures[name] for name in (*names, "recomputed_tokens", "unfinished", "errors")}
    runtime = figures.get("runtime") or [{}]
    return {**kept, "stops": runtime[0].get("stops"), "parks": runtime[0].get("parks")}


def in_ratios(cell: Cell) -> Cell:
    """The cell as the simulated ones are: P99s over chat alone's, shares in percent."""
    systems = {name.replace("-", "_"): figures for name, figures in cell["systems"].items()}
    alone = systems.pop(REFERENCE.replace("-", "_"))
    keys = {"ttft_s": ("ttft_ms", "p99"), "gap_s": ("tbt_ms", "p99"), "tpot_s": ("tpot_ms", "p99")}
    keys["gap_p90_s"] = "tbt_ms", "p90"
    rows = {}
    for name, found in systems.items():
        rows[name] = {key: found[of][at] / alone[of][at] for key, (of, at) in keys.items()}
        rows[name]["offline"] = found["offline_tokens_per_s"]
        for scale, ending in (("1.0", ""), ("1.25", "_125")):
            in_time = found["attainment"][scale]
            rows[name][f"ttft_ok{ending}"] = 100 * in_time["ttft"]
            rows[name][f"gap_ok{ending}"] = 100 * in_time["tbt"]
    return {**cell, "systems": rows}


def early_lines(cells: Sequence[Cell]) -> list[str]:
    """Cell by cell, first tokens planned just in time, for half of their target and earlier.

    Each has P99 over chat alone's, offline work beside no preemption, first tokens in time.
    """
    lines = ["| | just in time | for 0.5 | for 0.3 |", "|---|---|---|---|"]
    for cell in cells:
        systems, (device, load, _) = cell["systems"], cell["case"]
        if EARLY not in systems:
            continue
        parts = []
        for found in (systems[JUST_IN_TIME], systems[OURS], systems[EARLY]):
            ttft = found["ttft_ms"]["p99"] / systems[REFERENCE]["ttft_ms"]["p99"]
            share = found["offline_tokens_per_s"] / systems[NO_PREEMPTION]["offline_tokens_per_s"]
            in_time = found["attainment"]["1.0"]["ttft"]
            parts.append(f"{ttft:.2f} · {100 * share:.0f} % · {100 * in_time:.1f} %")
        lines.append(f"| {device.split('-')[0].upper()}, {load} | {' | '.join(parts)} |")
    return lines


def level_lines(cells: Sequence[Cell]) -> list[str]:
    """Cell by cell and level by level, those that were run.

    Each has P99 of first tokens, gaps and pace over chat alone's, offline work beside no
    preemption.
    """
    names = [f"{OURS}:{level}" for level in Level]
    run = [name for name in names if any(name in cell["systems"] for cell in cells)]
    lines = [
        "| | " + " | ".join(name.partition(":")[2] for name in run) + " |",
        "|---|" + "---|" * len(run),
    ]
    for cell in cells:
        systems, (device, load, _) = cell["systems"], cell["case"]
        parts = []
        for name in run:
            if name not in systems:
                parts.append("–")
                continue
            ratios = [
                systems[name][key]["p99"] / systems[REFERENCE][key]["p99"]
                for key in ("ttft_ms", "tbt_ms", "tpot_ms")
            ]
            beside = systems[NO_PREEMPTION]["offline_tokens_per_s"]
            share = 100 * systems[name]["offline_tokens_per_s"] / beside
            parts.append(" · ".join(f"{ratio:.2f}" for ratio in ratios) + f" · {share:.0f} %")
        if any(part != "–" for part in parts):
            lines.append(f"| {device.split('-')[0].upper()}, {load} | {' | '.join(parts)} |")
    return lines


def calibrated(cells: Sequence[Cell]) -> list[str]:
    """How many of the simulator's figures are inside what is asked of it, system by system."""
    found: dict[str, list[dict[str, Any]]] = {}
    for cell in cells:
        for system, pairs in cell["beside_simulated"].items():
            mixes = "+mixed" if "+mixed" in system else ""
            found.setdefault(system.partition("@")[0] + mixes, []).append(pairs)
    return [f"{system}: {inside(some)} of {sum(map(len, some))}" for system, some in found.items()]


def main() -> int:
    """Run what is missing of what is asked for, then print."""
    parser = option_parser(__doc__)
    parser.add_argument("--devices", default=",".join(EMULATED_DEVICES))
    parser.add_argument("--loads", default=",".join(LOADS))
    parser.add_argument("--systems", default=",".join(SYSTEMS))
    parser.add_argument(
        "--tbt-ms", help="target of gaps in new cells, in place of online-only's P99"
    )
    parser.add_argument(
        "--limit-s", type=float, default=math.inf, help="begin no further system after so long"
    )
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    cells: list[Cell] = json.loads(args.out.read_text()) if args.out.exists() else []
    wanted = args.systems.split(",")
    targets = [f"--tbt-ms={args.tbt_ms}"] if args.tbt_ms else []
    ends_s = time.monotonic() + args.limit_s
    for device in args.devices.split(","):
        for load in args.loads.split(","):
            case = Case(device, load, SEED, lifetimes=0.0)
            for _ in run_pieces(cells, case, wanted, targets, ends_s, run_cell):
                write_cells(args.out, cells)
    shown = comparable(cells)
    choices = choices_of(cells)
    show_means(shown, choices, EMULATED_DEVICES)
    print("\n" + "\n".join(tables(shown, choices, EMULATED_DEVICES)))
    print("levels", "", *level_lines(cells), "", sep="\n")
    print("first tokens planned early", "", *early_lines(cells), "", sep="\n")
    print("simulated figures inside what is asked", *calibrated(cells), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
