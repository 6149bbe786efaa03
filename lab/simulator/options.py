"""What can be asked of `coserve simulate`."""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass
from pathlib import Path

from engine_adapter.gpu_tables.gpu_table import CUDA_GRAPH_BATCH_SIZES, gpu_table_names
from engine_adapter.scheduling.policies.registry import COMPARED, LEVELLED
from engine_adapter.scheduling.policies.settings import Level
from lab.policies.registry import NAMES, TWO_POOLS
from lab.prediction.registry import SIMULATED, simulated_predictor
from lab.simulator.device import EngineSize
from lab.simulator.fleet import MOST_ENGINES, ROUTERS
from lab.simulator.replay import SharedPrefixes
from lab.workload.files import find_workload

REFERENCE = "online_only"


@dataclass(frozen=True, slots=True)
class Options:
    """One simulated comparison; see :func:`parse_options` for the meaning of each."""

    device: str
    size: EngineSize
    policies: tuple[str, ...]
    repeats: int
    duration_s: float
    lead_s: float
    trace: Path | None
    trace_start_s: float
    spread: bool
    scale: float
    clip: bool
    rate_per_s: float
    cv: float
    on_off_s: tuple[float, ...]
    input_tokens: int
    output_tokens: int
    online_prefixes: SharedPrefixes
    offline_lengths: Path | None
    offline_input_tokens: int
    offline_output_tokens: int
    offline_prefixes: SharedPrefixes
    outstanding: int
    predictor: str
    fleet: int
    router: str
    ttft_ms: float | None
    tbt_ms: float | None
    target_percentile: float
    slo_scales: tuple[float, ...]
    noise: float
    noise_memory: float
    seed: int
    out: Path


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="coserve simulate",
        description="Online requests beside a full queue of offline requests, on a device "
        "that is not there: step times come from a GPU table or a stored profile.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    _device(made.add_argument_group("device"))
    _online(made.add_argument_group("online requests"))
    _offline(made.add_argument_group("offline requests"))
    _run(made.add_argument_group("run"))
    return made


def _device(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add(
        "--device",
        default="h200-llama-3.1-8b",
        help="the file of a table or of a profile, or one of " + ", ".join(gpu_table_names()),
    )
    add("--kv-tokens", type=int, default=0, help="KV pool; 0 is what the GPU's memory holds")
    add("--slots", type=int, default=256, help="request slots")
    add("--chunk-tokens", type=int, default=2048, help="most prompt tokens of one step")
    add("--context", type=int, default=0, help="longest request; 0 is the model's")
    add("--host-kv-tokens", type=int, default=0, help="host checkpoint pool; 0 is as the device's")
    add("--overhead-ms", type=float, default=0.0, help="time between two forward passes")
    add("--no-graphs", action="store_true", help="decode steps are not padded to captured graphs")
    add("--noise", type=float, default=0.0, help="spread of step times, 0.1 is a tenth")
    add("--noise-memory", type=float, default=0.4, help="how far a slow step makes the next slow")


def _online(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--online", help="trace CSV: arrival_s,input_tokens,output_tokens")
    add("--online-start", type=float, default=0.0, help="second of the trace to start at")
    add("--spread", action="store_true", help="repeats are windows spread over the trace")
    add("--scale", type=float, default=1.0, help="stretch of arrivals; 2 halves the rate")
    add("--clip", action="store_true", help="shorten requests that are beyond the context")
    add("--rate", type=float, default=8.0, help="requests per second without a trace")
    add("--cv", type=float, default=1.0, help="variation of the gaps; 1 is Poisson")
    add("--on-off", default="", help="phase lengths in seconds, on first: 30,30,30")
    add("--input-tokens", type=int, default=1024)
    add("--output-tokens", type=int, default=128)
    add("--prefix", type=int, default=0, help="tokens that prompts of a group share")
    add("--prefix-groups", type=int, default=1, help="groups of prompts that begin alike")


def _offline(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--offline-lengths", help="CSV of lengths: input_tokens,output_tokens")
    add("--offline-input-tokens", type=int, default=2048)
    add("--offline-output-tokens", type=int, default=128)
    add("--offline-prefix", type=int, default=0, help="tokens that prompts of a group share")
    add("--offline-prefix-groups", type=int, default=1)
    add("--outstanding", type=int, default=512, help="offline requests always outstanding")


def _run(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--fleet", type=int, default=1, help=f"engines, 1 to {MOST_ENGINES}; each like --device")
    add("--router", default="least-load", help="who gets a request: " + ", ".join(ROUTERS))
    add("--predictor", default="history", help="lengths of answers: " + ", ".join(SIMULATED))
    add("--policies", default=",".join(COMPARED), help="comma-separated; online_only comes first")
    add("--level", default="max", help="of conserve_v2, comma-separated: " + ", ".join(Level))
    add("--repeats", type=int, default=1, help="each with arrivals and noise of its own")
    add("--duration", type=float, default=300.0, help="simulated seconds of each window")
    add("--lead", type=float, default=30.0, help="seconds of offline load before the window")
    add("--ttft-ms", type=float, help="TTFT target; online-only's own percentile by default")
    add("--tbt-ms", type=float, help="TBT target; likewise")
    add("--target-percentile", type=float, default=0.99, help="of online-only; the papers use 0.99")
    add("--slo-scale", default="1.0,1.25,1.5,2.0", help="attainment is given for each")
    add("--seed", type=int, default=1)
    add("--out", type=Path, default=Path(".coserve/simulate"), help="folder for results")


def parse_options(argv: list[str] | None = None) -> Options:
    """Read the command line.

    Raises:
        ValueError: In one sentence, naming the option or the file.
    """
    args = parser().parse_args(argv)
    _check(args)
    policies = tuple(name.strip().replace("-", "_") for name in args.policies.split(","))
    for name in policies:
        if name not in (*NAMES, *TWO_POOLS):
            known = ", ".join((*NAMES, *TWO_POOLS))
            raise ValueError(f"unknown policy {name!r}; choose among {known}")
        if name in TWO_POOLS and args.fleet < 2:
            raise ValueError(f"{name} has two pools of engines: --fleet has to be 2 or more")
    levels = tuple(level.strip() for level in args.level.split(","))
    for level in levels:
        if level not in tuple(Level):
            raise ValueError(f"unknown level {level!r}; choose among {', '.join(Level)}")
    if levels != (Level.MAX,):
        policies = tuple(one for name in policies for one in _at_levels(name, levels))
    size = EngineSize(
        kv_tokens=args.kv_tokens,
        slots=args.slots,
        chunk_tokens=args.chunk_tokens,
        max_context=args.context,
        host_kv_tokens=args.host_kv_tokens,
        overhead_s=args.overhead_ms / 1e3,
        batch_size_buckets=() if args.no_graphs else CUDA_GRAPH_BATCH_SIZES,
    )
    return Options(
        device=args.device,
        size=size,
        policies=(REFERENCE, *(name for name in policies if name != REFERENCE)),
        repeats=args.repeats,
        duration_s=args.duration,
        lead_s=args.lead,
        trace=find_workload(args.online, "online"),
        trace_start_s=args.online_start,
        spread=args.spread,
        scale=args.scale,
        clip=args.clip,
        rate_per_s=args.rate,
        cv=args.cv,
        on_off_s=_numbers("--on-off", args.on_off),
        input_tokens=args.input_tokens,
        output_tokens=args.output_tokens,
        online_prefixes=_prefixes(args.prefix, args.prefix_groups),
        offline_lengths=find_workload(args.offline_lengths, "lengths"),
        offline_input_tokens=args.offline_input_tokens,
        offline_output_tokens=args.offline_output_tokens,
        offline_prefixes=_prefixes(args.offline_prefix, args.offline_prefix_groups),
        outstanding=args.outstanding,
        predictor=args.predictor,
        fleet=args.fleet,
        router=args.router,
        ttft_ms=args.ttft_ms,
        tbt_ms=args.tbt_ms,
        target_percentile=args.target_percentile,
        slo_scales=_numbers("--slo-scale", args.slo_scale),
        noise=args.noise,
        noise_memory=args.noise_memory,
        seed=args.seed,
        out=args.out.absolute(),
    )


def _at_levels(name: str, levels: tuple[str, ...]) -> tuple[str, ...]:
    """A policy once for each level, if it has levels."""
    if name != LEVELLED:
        return (name,)
    return tuple(f"{name}:{level}" for level in levels)


_POSITIVE = (
    "slots", "chunk_tokens", "scale", "rate", "cv", "input_tokens", "output_tokens",
    "offline_input_tokens", "offline_output_tokens", "repeats", "duration", "prefix_groups",
    "offline_prefix_groups",
)  # fmt: skip
_NOT_NEGATIVE = (
    "kv_tokens", "context", "host_kv_tokens", "overhead_ms", "noise", "online_start", "prefix",
    "offline_prefix", "outstanding", "lead",
)  # fmt: skip


def _check(args: argparse.Namespace) -> None:
    """Refuse what nothing can be simulated with."""
    for name in (*_POSITIVE, *_NOT_NEGATIVE):
        value = getattr(args, name)
        option = f"--{name.replace('_', '-')}"
        if not 0 <= value < math.inf:
            raise ValueError(f"{option} is {value}; it has to be a number of at least 0")
        if name in _POSITIVE and value == 0:
            raise ValueError(f"{option} has to be above 0")
    if not 1 <= args.fleet <= MOST_ENGINES:
        raise ValueError(f"--fleet is {args.fleet}; it has to be 1 to {MOST_ENGINES} engines")
    if args.spread and not args.online:
        raise ValueError("--spread spreads windows over a trace: give one with --online")
    if args.router not in ROUTERS:
        raise ValueError(f"unknown router {args.router!r}; choose among {', '.join(ROUTERS)}")
    simulated_predictor(args.predictor, len)
    for name in ("ttft_ms", "tbt_ms"):
        value = getattr(args, name)
        if value is not None and not 0 < value < math.inf:
            raise ValueError(f"--{name.replace('_', '-')} has to be above 0")
    if not 0.0 < args.target_percentile <= 1.0:
        raise ValueError("--target-percentile lies above 0 and not above 1, for example 0.99")
    if not 0.0 <= args.noise_memory < 1.0:
        raise ValueError("--noise-memory lies between 0 and 1, below 1")


def _numbers(option: str, text: str) -> tuple[float, ...]:
    try:
        found = tuple(float(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise ValueError(f"{option} takes numbers between commas, not {text!r}") from None
    if not all(0.0 < number < math.inf for number in found):
        raise ValueError(f"{option} takes numbers above 0, not {text!r}")
    return found


def _prefixes(tokens: int, groups: int) -> SharedPrefixes:
    return SharedPrefixes(tokens, groups) if tokens else SharedPrefixes()
