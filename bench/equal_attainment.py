"""All policies at equal attainment: offline tokens once chat's targets are met, simulated.

    python -m bench.equal_attainment [--traces azure-conv] [--policies bros,xllm]

Llama-3.1-8B on an H100, chat of a trace beside four batches of documents. Targets are a multiple of
online-only's own P99 of TTFT and of gaps. Each policy is turned up until less than 99 % of first
tokens or of gaps are in time: by the target of gaps it is shown where it knows targets, else by the
offline requests that are outstanding. Figures are those of the last setting that met the targets,
found by halving. With ``--steps`` the engine's steps are tried, too. Writes
bench/results/equal_attainment.json, of which bench.equal_attainment_page makes the tables and the
plot of docs/which-policy.md.

Quoted in docs/which-policy.md.
"""

from __future__ import annotations

import json
import math
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from statistics import mean
from typing import Any

from bench.paths import RESULTS, WORKLOADS
from bench.report import jain, option_parser, write_cells
from bench.reproduce.world import Job, Spread
from engine_adapter.scheduling.policies.registry import create_policy
from engine_adapter.scheduling.policies.settings import PolicySettings
from engine_adapter.scheduling.targets import Slo
from lab.policies.registry import TWO_POOLS
from lab.simulator.device import EngineSize, SimulatedDevice, find_device
from lab.simulator.replay import Replay, SimulatedLoad
from lab.simulator.shape import Track
from lab.simulator.times import Noise
from lab.simulator.two_pools import Journey, TwoPools
from lab.workload.arrivals import gamma_arrivals
from lab.workload.summary import SystemRun, gaps_s, offline_rate, tpots_s, ttfts_s
from lab.workload.traces import TraceRequest, read_trace
from service.percentiles import attained, percentile

OUT = RESULTS / "equal_attainment.json"
ONLINE = WORKLOADS / "online"
DEVICE = "h100-llama-3.1-8b"
TRACES = {
    "azure-conv": "azure2023_conv_0_40min.csv",
    "burstgpt": "burstgpt1_day1_compressed_15min.csv",
    "mooncake": "mooncake_conv_0_30min.csv",
}
LAWS = {
    "azure-conv": (1.1, Job(Spread.by_p99(1195, 4122, 14050), Spread.by_p99(201, 598, 1000))),
    "burstgpt": (4.5, Job(Spread.by_p99(544, 1960, 2126), Spread.by_p99(289, 1442, 2019))),
    "mooncake": (1.1, Job(Spread(12870, 1.2, 100, 91305), Spread.by_p99(346, 1105, 2000))),
}
"""Without the traces: variation of gaps, and lengths by mean and P99 (Mooncake's spread by eye)."""

DOCUMENTS = Job(Spread.by_p99(2573, 3932, 4046), Spread(300, 0.9, most=3333))
"""Offline: arXiv articles and their summaries, by their mean."""

MEASURED_S, LEAD_S = 120.0, 20.0
COMPLETION_WINDOWS_S = (20.0, 40.0, 80.0, 120.0)
OUTSTANDING = 256
BUSY = 1 / 3
"""Of the device's time that chat's tokens alone would take at their best price."""

TARGET_SCALE = 1.5
ENOUGH = 0.99
SEEDS = (1, 2)
Knob = tuple[float, int, int]
"""Scale of the target of gaps that is shown, offline requests outstanding, tokens of a step."""

SCALES = (0.4, 0.5, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0, 1.1, 1.2, 1.35, 1.5)
SHARES = (2, 4, 8, 12, 16, 24, 32, 40, 48, 64, 80, 96, 128, 192, OUTSTANDING)
TARGETED = ("conserve_v2", "conserve_v1", "xllm", "bros")
COUNTED = (
    "sarathi_p", "non_preemptive", "round_robin", "fastgen", "vllm", "vllm_swap", "orca",
    "fastserve", "multires", "ecoserve", "distserve",
)  # fmt: skip
STEP_TOKENS = 1024
"""Of policies that count tokens: about half of the target of gaps."""
Figures = dict[str, float]
Cell = dict[str, Any]
Tracks = Sequence[Track] | Sequence[Journey]


@dataclass(frozen=True)
class Case:
    """Chat of one trace with one seed."""

    trace: str
    seed: int
    workloads: Path


@cache
def device_of(chunk_tokens: int) -> SimulatedDevice:
    """The engine with a step of so many prompt tokens."""
    return find_device(DEVICE, EngineSize(chunk_tokens=chunk_tokens, overhead_s=0.001))


def chat(case: Case, device: SimulatedDevice) -> list[TraceRequest]:
    """Requests of a window that keep the device a third busy; a short trace begins anew."""
    dice = random.Random(f"chat/{case.seed}")
    path = case.workloads / TRACES[case.trace]
    longest = device.max_context
    if path.is_file():
        trace = read_trace(path)
    else:
        cv, law = LAWS[case.trace]
        trace = [
            TraceRequest(at_s, *law.draw(dice))
            for at_s in gamma_arrivals(1.0, cv, 4000.0, case.seed)
        ]
    trace = [
        TraceRequest(
            r.arrival_s, min(longest * 3 // 4, r.input_tokens), min(longest // 4, r.output_tokens)
        )
        for r in trace
    ]
    work_s = mean(device.request_s(r.input_tokens, r.output_tokens) for r in trace)
    span_s = trace[-1].arrival_s - trace[0].arrival_s
    stretch = work_s / BUSY / (span_s / len(trace))
    place, at_s, made = dice.randrange(len(trace)), 0.0, []
    while at_s < MEASURED_S:
        made.append(replace(trace[place], arrival_s=at_s))
        place = (place + 1) % len(trace)
        gap_s = trace[place].arrival_s - trace[place - 1].arrival_s if place else 1.0
        at_s += gap_s * stretch
    return made


def documents(seed: int) -> Iterator[tuple[int, int]]:
    """Lengths of offline requests without end."""
    dice = random.Random(f"documents/{seed}")
    while True:
        yield DOCUMENTS.draw(dice)


def play(case: Case, policy: str, knob: Knob, slo: Slo) -> tuple[SystemRun, Tracks]:
    """One run, and what is known of each of its requests."""
    scale, outstanding, chunk_tokens = knob
    device = device_of(chunk_tokens)
    offline = None if policy == "online_only" else documents(case.seed)
    online = chat(case, device_of(2048))
    if policy in TWO_POOLS:  # twice the chat on twice the GPUs
        online += chat(replace(case, seed=case.seed + 100), device_of(2048))
        online.sort(key=lambda request: request.arrival_s)
        outstanding *= 2
    load = SimulatedLoad(
        online, offline, outstanding, MEASURED_S, LEAD_S, batch_windows_s=COMPLETION_WINDOWS_S
    )
    name, _, left_out = policy.partition(" - ")
    without = frozenset(left_out.split("+") if left_out else ())
    settings = PolicySettings(token_budget=chunk_tokens, without=without)
    shown, seed = replace(slo, tbt_s=slo.tbt_s * scale), f"{case.seed}/{policy}"
    if policy in TWO_POOLS:
        pools = TwoPools(
            device,
            lambda: create_policy(name, device.model, settings),
            load,
            shown,
            make_noise=lambda n: Noise(0.08, 0.4, f"{seed}/{n}"),
        )
        return pools.replay(), list(pools.journeys.values())
    made = create_policy(name, device.model, settings)
    replayed = Replay(device, made, load, shown, Noise(0.08, 0.4, seed))
    return replayed.run(0, lambda _: None), list(replayed.engine.tracks.values())


def measure(run: SystemRun, tracks: Tracks, slo: Slo, engines: int = 1) -> Figures:
    """What the page shows."""
    ttft, gaps = ttfts_s(run), gaps_s(run)
    served = [0.0] * len(COMPLETION_WINDOWS_S)
    due = late = 0
    for track in tracks:
        row = track.request
        if row.is_online:
            continue
        served[int(row.batch_id)] += sum(0.0 <= at_s < MEASURED_S for at_s in track.times)
        if 0.0 <= row.deadline_at_s < MEASURED_S:
            due += 1
            done = len(track.times) >= track.answer_tokens
            late += not done or track.times[-1] > row.deadline_at_s
    return {
        "offline": offline_rate(run) / engines,
        "ttft_ok": attained(ttft, slo.ttft_s) or 0.0,
        "gap_ok": attained(gaps, slo.tbt_s) or 0.0,
        "ttft_p99": percentile(ttft, 0.99),
        "gap_p99": percentile(gaps, 0.99) if gaps else math.inf,
        "pace_p99": percentile(tpots_s(run), 0.99),
        "jain": jain(served),
        "late": late / due if due else 0.0,
    }


def in_time(figures: Figures) -> bool:
    """Whether a run met the targets."""
    return min(figures["ttft_ok"], figures["gap_ok"]) >= ENOUGH


@cache
def targets(case: Case) -> tuple[Slo, Figures]:
    """A multiple of online-only's own P99, and its figures."""
    loose = Slo(1e3, 1e3)
    alone = measure(*play(case, "online_only", (1.0, 0, 2048), loose), loose)
    return Slo(alone["ttft_p99"] * TARGET_SCALE, alone["gap_p99"] * TARGET_SCALE), alone


def knobs(policy: str, step_tokens: int = 0) -> list[Knob]:
    """Settings from the least harvest to the most."""
    if policy.partition(" ")[0] in TARGETED:
        return [(scale, OUTSTANDING, step_tokens or 2048) for scale in SCALES]
    return [(1.0, share, step_tokens or STEP_TOKENS) for share in SHARES]


def sweep(case: Case, policy: str, steps: Sequence[int] = (0,)) -> Cell:
    """The last setting that meets the targets, and its figures; the best of several steps."""
    slo, alone = targets(case)
    engines = 2 if policy in TWO_POOLS else 1

    def at(knob: Knob) -> Figures:
        return measure(*play(case, policy, knob, slo), slo, engines)

    tried = [last_in_time(knobs(policy, step_tokens), at) for step_tokens in steps]
    found = max(filter(None, tried), key=lambda one: one[1]["offline"], default=None)
    return {
        "trace": case.trace,
        "seed": case.seed,
        "policy": policy,
        "real": (case.workloads / TRACES[case.trace]).is_file(),
        "targets_ms": [round(1e3 * slo.ttft_s, 1), round(1e3 * slo.tbt_s, 1)],
        "alone": alone,
        "knob": found[0] if found else None,
        "figures": found[1] if found else None,
    }


def last_in_time(line: list[Knob], at: Callable[[Knob], Figures]) -> tuple[Knob, Figures] | None:
    """By halving: the last setting of a line that meets the targets; None if the first does not.

    The most is tried first: where targets are wide it is the last that does.
    """
    low, middle, high, found = -1, len(line) - 1, len(line), None
    while high - low > 1:
        figures = at(line[middle])
        if in_time(figures):
            low, found = middle, (line[middle], figures)
        else:
            high = middle
        middle = (low + high) // 2
    return found


def main() -> int:
    """Sweep, write, print."""
    parser = option_parser(__doc__)
    parser.add_argument("--traces", default=",".join(TRACES))
    parser.add_argument(
        "--steps", default="", help="tokens of a step to try, comma separated; the best is kept"
    )
    parser.add_argument("--policies", default=",".join((*TARGETED, *COUNTED)))
    parser.add_argument("--seeds", default=",".join(map(str, SEEDS)))
    parser.add_argument("--workloads", type=Path, default=ONLINE)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--out", type=Path, default=OUT, help="cells are added to this file")
    args = parser.parse_args()
    wanted = [
        (Case(trace, int(seed), args.workloads), policy)
        for seed in args.seeds.split(",")
        for trace in args.traces.split(",")
        for policy in args.policies.split(",")
    ]
    kept: list[Cell] = json.loads(args.out.read_text()) if args.out.is_file() else []
    steps = [int(tokens) for tokens in args.steps.split(",")] if args.steps else [0]
    with ProcessPoolExecutor(args.processes) as pool:
        for task in [pool.submit(sweep, case, policy, steps) for case, policy in wanted]:
            cell = task.result()
            kept = [old for old in kept if key(old) != key(cell)] + [cell]
            print(line_of(cell), flush=True)
            write_cells(args.out, kept)
    return 0


def key(cell: Cell) -> tuple[str, int, str]:
    """What a cell is about."""
    return cell["trace"], cell["seed"], cell["policy"]


def line_of(cell: Cell) -> str:
    """One line of what came out."""
    figures = cell["figures"]
    if figures is None:
        return f"{cell['trace']:11} {cell['policy']:15} no setting meets the targets"
    values = "  ".join(f"{key} {value:.4g}" for key, value in figures.items())
    return f"{cell['trace']:11} {cell['policy']:15} {cell['knob']}  {values}"


if __name__ == "__main__":
    sys.exit(main())
