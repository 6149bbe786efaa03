"""A cell of the simulated tables: one load on one device with one seed, under several systems.

`online_only` runs first; its own P99 of TTFT, of gaps and of pace are the targets of the others,
over the same arrivals. Rates are chosen so that online requests alone fill a third of the device.
Windows are steady: a lifetime of an offline request has passed when they open. The seeds are held
out: no rule was tuned on them. Traces come from a folder of workloads; without one, generated
arrivals with the lengths of the Azure traces' means stand in for them. A trace that ends before its
window begins anew.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from itertools import count, islice, repeat
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple, TypeVar

from bench.paths import DATA, WORKLOADS
from bench.report import option_parser
from engine_adapter.scheduling.policies.registry import create_policy
from engine_adapter.scheduling.policies.settings import PolicySettings
from engine_adapter.scheduling.profile import load_profile
from engine_adapter.scheduling.targets import Slo
from lab.simulator.device import (
    EngineSize,
    SimulatedDevice,
    engine_for,
    find_device,
    profile_device,
)
from lab.simulator.replay import SimulatedLoad, replay
from lab.simulator.times import Noise
from lab.workload.arrivals import gamma_arrivals, on_off_arrivals
from lab.workload.lengths import Lengths
from lab.workload.summary import SystemRun, gaps_s, tpots_s, ttfts_s
from lab.workload.traces import TraceRequest, read_trace
from service.percentiles import percentile

ONLINE = WORKLOADS / "online"
CPU_PROFILE = DATA / "cpu-smollm2-135m.json"
DEVICES = ("h200-llama-3.1-8b", "h100-llama-3.1-8b", "a100-llama-3.1-8b", "cpu-smollm2-135m")
TRACES = {
    "azure-conv": "azure2023_conv_0_40min.csv",
    "azure-code": "azure2023_code_0_40min.csv",
    "burstgpt": "burstgpt1_day1_compressed_15min.csv",
    "mooncake": "mooncake_conv_0_30min.csv",
}
STEPS_S = {"mooncake": 3.0}
"""Time stamps of that trace come in such steps: requests are spread over theirs."""
SEEDS = (101, 102, 103)
NUM_ONLINE, LIFETIMES = 320, 3.0
"""The least that a window holds: online requests, and lifetimes of an offline one."""

FOR_RULES: dict[str, Any] = {"num_online": 160, "lifetimes": 1.0}
OUTSTANDING = 256
BUSY = 1 / 3
"""Of the device's time that online requests alone would take, their tokens at their best price."""

WITH_PACE = ", pace"
PACE = 1.2
"""Targets of pace are so many times online-only's P99: asked is at most 1.3."""


class System(NamedTuple):
    """A policy with its settings, as a cell runs it."""

    policy: str
    settings: PolicySettings = PolicySettings()


Systems = dict[str, System]
"""By the name that the tables have; what follows `@` in it is for the engine (see `engine_for`)."""

Found = TypeVar("Found")
Cell = dict[str, Any]
"""What :func:`run_case` says of a case; written as JSON."""


@dataclass(frozen=True)
class Case:
    """One load on one device with one seed."""

    device: str
    load: str
    seed: int
    num_online: int = NUM_ONLINE
    lifetimes: float = LIFETIMES


def make_device(name: str, chunk_tokens: int = 0) -> SimulatedDevice:
    """A GPU out of its table, or the machine of the stored profile; steps are noisy (see cell)."""
    if name.startswith("cpu"):
        size = EngineSize(
            kv_tokens=16384, slots=24, chunk_tokens=chunk_tokens or 512, max_context=4096
        )
        return profile_device(name, load_profile(CPU_PROFILE), size)
    return find_device(name, EngineSize(overhead_s=0.001, chunk_tokens=chunk_tokens or 2048))


def online_requests(case: Case, device: SimulatedDevice, workloads: Path) -> list[TraceRequest]:
    """Requests that keep the device a third busy, from a place in the trace that the seed picks."""
    path = workloads / TRACES.get(case.load, "")
    traced = case.load in TRACES and path.is_file()
    some = _traced(case, device, path) if traced else _generated(case)
    least_s = BUSY * case.lifetimes * lifetime_s(case, device)
    made: list[TraceRequest] = []
    work_s = 0.0
    while len(made) < case.num_online or work_s < least_s:
        made.append(r := next(some))
        work_s += device.request_s(r.input_tokens, r.output_tokens)
    made.sort(key=lambda r: r.arrival_s)
    assert len({r.arrival_s for r in made}) > len(made) // 10, "arrivals are not spread"
    from_s = made[0].arrival_s if traced else 0.0
    stretch = work_s / BUSY / (made[-1].arrival_s - from_s)
    return [replace(r, arrival_s=(r.arrival_s - from_s) * stretch) for r in made]


def _traced(case: Case, device: SimulatedDevice, path: Path) -> Iterator[TraceRequest]:
    """Requests of a trace, over and over."""
    dice = random.Random(case.seed)
    trace, longest = read_trace(path), device.max_context
    step_s = STEPS_S.get(case.load, 0.0)
    shrink = 4 if case.device.startswith("cpu") else 1  # a small model is asked shorter questions
    start = dice.randrange(max(1, len(trace) - case.num_online))
    for number in count(start):
        rounds, at = divmod(number, len(trace))
        r = trace[at]
        yield TraceRequest(
            rounds * trace[-1].arrival_s + r.arrival_s + (step_s and dice.uniform(0.0, step_s)),
            min(longest * 3 // 4, max(8, r.input_tokens // shrink)),
            min(longest // 4, max(2, r.output_tokens // shrink)),
        )


def _generated(case: Case) -> Iterator[TraceRequest]:
    """Requests of a generated load, more of them than any window takes."""
    dice = random.Random(case.seed)
    lengths = (256, 48) if case.device.startswith("cpu") else (1024, 128)
    if case.load == "on-off":
        arrivals = on_off_arrivals(2.0, [40.0] * 80, case.seed, 1.0)
    else:
        arrivals = gamma_arrivals(1.0, 2.0, 3200.0, case.seed)
    for at_s in arrivals:
        yield TraceRequest(
            at_s, *(max(2, round(n * dice.lognormvariate(0.0, 0.5))) for n in lengths)
        )


def lifetime_s(case: Case, device: SimulatedDevice) -> float:
    """What the outstanding offline requests take with all that chat leaves of the device."""
    outstanding = islice(offline_lengths(case), OUTSTANDING)
    return sum(device.request_s(*lengths) for lengths in outstanding) / (1.0 - BUSY)


def offline_lengths(case: Case) -> Iterator[Lengths]:
    """Prompt and answer of one offline request after another."""
    dice = random.Random(f"offline/{case.seed}")
    inputs, outputs = (384, 48) if case.device.startswith("cpu") else (2048, 160)
    longest = 3000 if case.device.startswith("cpu") else 24000
    for _ in repeat(None):
        yield (
            min(longest, max(16, round(inputs * dice.lognormvariate(0.0, 0.7)))),
            max(4, round(outputs * dice.lognormvariate(0.0, 0.6))),
        )


def steady_load(case: Case, device: SimulatedDevice, online: list[TraceRequest]) -> SimulatedLoad:
    """Chat of a case in a window that opens with a lifetime of offline work behind it."""
    ends_s = online[-1].arrival_s
    lead_s, drain_s = lifetime_s(case, device), max(60.0, ends_s / 4)
    return SimulatedLoad(online, None, OUTSTANDING, ends_s, lead_s, drain_s)


def p99s(run: SystemRun) -> dict[str, float]:
    """What online requests got; P99 unless said otherwise."""
    return {
        "ttft_s": percentile(ttfts_s(run), 0.99),
        "ttft_p90_s": percentile(ttfts_s(run), 0.90),
        "gap_s": percentile(gaps_s(run), 0.99),
        "gap_p90_s": percentile(gaps_s(run), 0.90),
        "tpot_s": percentile(tpots_s(run), 0.99),
    }


def run_case(case: Case, workloads: Path, systems: Systems) -> Cell:
    """Every system over one case, figures as ratios to `online_only`; offline in tokens/s."""
    device = make_device(case.device)
    online = online_requests(case, device, workloads)
    duration_s = online[-1].arrival_s
    load = steady_load(case, device, online)
    slo = Slo(1e3, 1e3)

    def play(policy: str, settings: PolicySettings, slo: Slo, device: SimulatedDevice) -> SystemRun:
        offline = None if policy == "online_only" else offline_lengths(case)
        noise = Noise(0.08, 0.4, f"{case.seed}/{policy}")
        made = create_policy(policy, device.model, settings)
        return replay(device, made, replace(load, offline=offline), slo, noise=noise)

    base = p99s(play("online_only", PolicySettings(), slo, device))
    slo = Slo(base["ttft_s"], base["gap_s"], PACE * base["tpot_s"])
    found: dict[str, Any] = {}
    for name, (policy, settings) in systems.items():
        _, kept, pace = name.partition(WITH_PACE)
        pace_s = float(pace or PACE) * base["tpot_s"] if kept else float("inf")
        own = replace(slo, tpot_s=pace_s)
        run = play(policy, settings, own, engine_for(device, name))
        seen = p99s(run)
        waits, gaps = ttfts_s(run), gaps_s(run)
        found[name] = {
            **{key: seen[key] / base[key] for key in seen},
            "offline": run.counters["offline_tokens"] / duration_s,
            "work": run.counters["offline_work_s"] / duration_s,
            "ttft_ok": 100 * sum(s <= slo.ttft_s for s in waits) / len(waits),
            "gap_ok": 100 * sum(s <= slo.tbt_s for s in gaps) / len(gaps),
            "ttft_ok_125": 100 * sum(s <= 1.25 * slo.ttft_s for s in waits) / len(waits),
            "gap_ok_125": 100 * sum(s <= 1.25 * slo.tbt_s for s in gaps) / len(gaps),
            "stops": run.counters["stops"],
            "restored": run.counters["restored_tokens"],
        }
    return {
        "case": [case.device, case.load, case.seed],
        "n": len(online),
        "duration_s": round(duration_s, 1),
        "targets_ms": [round(1e3 * s, 2) for s in (slo.ttft_s, slo.tbt_s, slo.tpot_s)],
        "systems": found,
    }


def averages(cells: list[Cell], name: str) -> dict[str, float]:
    """Means over cells; offline as a share of non-preemptive's."""
    rows = [cell["systems"][name] for cell in cells]
    share = [
        cell["systems"][name]["offline"] / cell["systems"]["non_preemptive"]["offline"]
        for cell in cells
    ]
    keys = ("ttft_s", "gap_s", "gap_p90_s", "tpot_s", "ttft_ok", "gap_ok")
    return {"offline": mean(share), **{key: mean(row[key] for row in rows) for key in keys}}


def show(name: str, found: dict[str, float]) -> None:
    """One line of the table."""
    print(
        f"  {name:22} offline {100 * found['offline']:5.1f} %  P99 ttft {found['ttft_s']:5.2f} "
        f"gap {found['gap_s']:5.2f} pace {found['tpot_s']:5.2f}  P90 gap {found['gap_p90_s']:5.2f}"
        f"  in time {found['ttft_ok']:5.1f} {found['gap_ok']:5.1f}"
    )


def cell_parser(
    doc: str | None, *, devices: Sequence[str] = DEVICES, loads: Sequence[str] = ()
) -> argparse.ArgumentParser:
    """A parser with what tables of cells are asked for; lists have commas between."""
    parser = option_parser(doc)
    parser.add_argument("--workloads", type=Path, default=ONLINE)
    parser.add_argument("--devices", default=",".join(devices))
    parser.add_argument("--loads", default=",".join(loads))
    parser.add_argument("--processes", type=int, default=2)
    return parser


def cases_of(devices: str, loads: str, seeds: str, **window: Any) -> list[Case]:
    """A case for each device, load and seed of these lists; the window's fields are those of it."""
    return [
        Case(device, load, int(seed), **window)
        for device in devices.split(",")
        for load in loads.split(",")
        for seed in seeds.split(",")
    ]


def run_cases(
    cases: Sequence[Case], run: Callable[[Case, Path], Found], options: argparse.Namespace
) -> list[Found]:
    """All cases, in as many processes as are asked for."""
    with ProcessPoolExecutor(options.processes) as pool:
        return list(pool.map(run, cases, repeat(options.workloads)))
