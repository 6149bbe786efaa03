"""The simulator beside an engine: the same device, arrivals, lengths, targets and sizes.

    python -m bench.calibration .coserve/bench/results.json --results-at-once
    python -m bench.calibration .coserve/bench/results.json --profile FILE --overhead-ms 5

Reads what `coserve bench coserve --device emulated:NAME` wrote (generated arrivals, `--scale 1`),
or for a CPU the same with the profile that its engine stored. Simulates every system of it, those
of stock SGLang with our policies of that name, and compares percentiles and offline tokens.
Latencies within 15 % and offline tokens within 10 % are asked.

Quoted in docs/emulated-device.md and docs/benchmark-coserve-details.md.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from bench.coserve_bench.options import EMULATED
from bench.coserve_bench.systems import SHARES
from bench.report import at_least, option_parser, report
from engine_adapter.scheduling.latency import StepLoad
from engine_adapter.scheduling.policies.registry import create_policy
from engine_adapter.scheduling.policies.settings import DEFAULT_LEVEL, Level, PolicySettings
from engine_adapter.scheduling.profile import load_profile
from engine_adapter.scheduling.targets import Slo
from lab.simulator.device import (
    EngineSize,
    SimulatedDevice,
    find_device,
    profile_device,
    stock_engine,
)
from lab.simulator.replay import SimulatedLoad, replay
from lab.simulator.times import StepTimes
from lab.workload.arrivals import gamma_arrivals
from lab.workload.lengths import Lengths, fixed_lengths
from lab.workload.summary import MS, Targets, summarise
from lab.workload.traces import TraceRequest

POLICIES = {
    "online-only": "sglang_no_preemption",
    "coserve-online-only": "online_only",
    "non-preemptive": "sglang_no_preemption",
    "sglang-priority": "sglang_priority",
    "sarathi-p": "sarathi_p",
    "conserve-v1": "conserve_v1",
    "conserve-v2": "conserve_v2",
    **dict.fromkeys(SHARES, "conserve_v2"),
}
SETTINGS = {name: PolicySettings(ttft_planning_share=share) for name, share in SHARES.items()}
STOCK = ("online-only", "non-preemptive", "sglang-priority")
LATENCY_LIMIT, OFFLINE_LIMIT = 0.15, 0.10


@dataclass(frozen=True, slots=True)
class LongerPrompts:
    """Steps that hold prompts take so many times what they take on a device at rest."""

    times: StepTimes
    factor: float

    def step_s(self, load: StepLoad, chunks: Sequence[tuple[int, int]]) -> float:
        return self.times.step_s(load, chunks) * (self.factor if chunks else 1.0)


@dataclass(frozen=True, slots=True)
class Run:
    """What was sent in one repeat of a benchmark, and its targets."""

    online: Sequence[TraceRequest]
    offline: Callable[[], Iterator[Lengths]]
    targets: Targets


def generated_runs(options: dict[str, Any], targets: Sequence[Targets]) -> list[Run]:
    """The runs of a benchmark with generated arrivals, by the options in its ``results.json``."""
    runs = []
    for repeat, target in enumerate(targets):
        seed = options["seed"] + 1000 * repeat
        arrivals = gamma_arrivals(options["rate_per_s"], options["cv"], options["duration_s"], seed)
        lengths = options["input_tokens"], options["output_tokens"]
        documents = options["offline_input_tokens"], options["offline_output_tokens"]
        online = [TraceRequest(at_s, *lengths) for at_s in arrivals]
        runs.append(Run(online, partial(fixed_lengths, *documents), target))
    return runs


def without_overlap(device: SimulatedDevice) -> SimulatedDevice:
    """The device under an engine on a CPU, emulated or not: each step's results are there at once.

    SGLang's overlap loop, which the simulator has by default, is off there.
    """
    return replace(device, shape=replace(device.shape, delay_steps=0))


def simulated(
    device: SimulatedDevice,
    system: str,
    options: dict[str, Any],
    sent: Sequence[Run],
) -> dict[str, Any]:
    """The same runs, simulated and summarised."""
    system, _, level = system.partition(":")
    system, _, setting = system.partition("@")
    policy = POLICIES[system]
    settings = replace(
        SETTINGS.get(system, PolicySettings()), level=Level(level) if level else DEFAULT_LEVEL
    )
    if system in STOCK:
        device = stock_engine(device, setting)
    runs = []
    for repeat, one in enumerate(sent):
        load = SimulatedLoad(
            list(one.online),
            None if "online-only" in system else one.offline(),
            options["outstanding"],
            options["duration_s"],
            options["lead_s"],
            output_bound=1,  # clients ask for as many tokens as they get
        )
        slo = Slo(one.targets.ttft_s, one.targets.tbt_s)
        made = create_policy(policy, device.model, settings)
        run = replay(device, made, load, slo, repeat=repeat)
        runs.append(run)
    targets = {repeat: one.targets for repeat, one in enumerate(sent)}
    return summarise(runs, runs, targets, (1.0,))


def beside(engine: dict[str, Any], ours: dict[str, Any]) -> dict[str, Any]:
    """Figures of both, and the simulator's over the engine's."""
    found: dict[str, Any] = {}
    for which in ("ttft_ms", "tbt_ms", "tpot_ms"):
        for share in ("p50", "p90", "p99"):
            one, other = (s[which] and s[which][share] for s in (engine, ours))
            if one and other:
                found[f"{which} {share}"] = _pair(one, other)
    if engine["offline_tokens_per_s"]:
        pair = engine["offline_tokens_per_s"], ours["offline_tokens_per_s"]
        found["offline_tokens_per_s"] = _pair(*pair)
    return found


def said(name: str) -> str:
    """A system in words: those of stock SGLang are simulated by a policy of another name."""
    system = name.partition("@")[0]
    return f"{name} (stock SGLang against our {POLICIES[system]})" if system in STOCK else name


def compare(
    device: SimulatedDevice, engines: dict[str, Any], options: dict[str, Any], sent: Sequence[Run]
) -> dict[str, Any]:
    """Every system of a benchmark beside its simulation."""
    return {
        said(name): beside(engine, simulated(device, name, options, sent))
        for name, engine in engines.items()
    }


def inside(compared: Iterable[dict[str, Any]]) -> int:
    """How many figures are inside what is asked."""
    num = 0
    for figures in compared:
        for figure, pair in figures.items():
            limit = OFFLINE_LIMIT if figure.startswith("offline") else LATENCY_LIMIT
            num += abs(pair["ratio"] - 1.0) <= limit
    return num


def _pair(engine: float, ours: float) -> dict[str, float]:
    return {
        "engine": round(engine, 2),
        "simulated": round(ours, 2),
        "ratio": round(ours / engine, 3),
    }


def main(argv: list[str] | None = None) -> int:
    """Compare, print, write `bench/results/calibration.json`, or `calibration_cpu.json`."""
    parser = option_parser(__doc__)
    parser.add_argument("results", type=Path, help="results.json of the benchmark")
    parser.add_argument(
        "--results-at-once", action="store_true", help="no overlap loop, as in an engine on a CPU"
    )
    parser.add_argument("--profile", type=Path, help="of a CPU engine; what its steps take")
    parser.add_argument("--longer-prompts", type=float, metavar="TIMES", help="once more so")
    parser.add_argument("--overhead-ms", type=float, default=0.0, help="between two of its steps")
    args = parser.parse_args(argv)
    results = json.loads(args.results.read_text())
    environment = results["environment"]
    told = environment["options"]
    measured: dict[str, Any] = {
        "device": told["device"],
        **compared(results, device_of(told, args), args),
        "engine_passes": environment.get("emulated_passes"),
        "engine_load_average": environment["load_average"],
    }
    name = "calibration_cpu" if args.profile else "calibration"
    report(name, measured, {"figures_inside": at_least(float(measured["figures_compared"]))})
    return 0  # a miss is told, and no failure


def device_of(told: dict[str, Any], args: argparse.Namespace) -> SimulatedDevice:
    """The device that a benchmark with these options had."""
    size = EngineSize(
        kv_tokens=told["kv_tokens"],
        slots=told["slots"],
        chunk_tokens=told["chunk_tokens"],
        overhead_s=args.overhead_ms / MS,
    )
    table = str(told["device"]).removeprefix(EMULATED)
    if args.profile:
        device = profile_device(table, load_profile(args.profile), size)
    else:
        device = find_device(table, size)
    return without_overlap(device) if args.results_at_once else device


def compared(
    results: dict[str, Any], device: SimulatedDevice, args: argparse.Namespace
) -> dict[str, Any]:
    """All that is asked for of a benchmark's results, and how many figures are inside."""
    environment = results["environment"]
    told = environment["options"]
    targets = [Targets(slo["ttft"] / MS, slo["tbt"] / MS) for slo in environment["slo_ms"]]
    sent = generated_runs(told, targets)
    engines = {
        name: figures
        for name, figures in results["systems"].items()
        if re.split("[@:]", name)[0] in POLICIES
    }
    figures = compare(device, engines, told, sent)
    measured = dict(figures)
    if args.longer_prompts:
        slower = replace(device, times=LongerPrompts(device.times, args.longer_prompts))
        longer = compare(slower, engines, told, sent)
        words = f"prompts {args.longer_prompts:g}"
        measured |= {f"{name}, {words}": pairs for name, pairs in longer.items()}
        measured["figures_inside_with_longer_prompts"] = inside(longer.values())
    measured["figures_inside"] = inside(figures.values())
    measured["figures_compared"] = sum(map(len, figures.values()))
    return measured


if __name__ == "__main__":
    sys.exit(main())
