"""What ``coserve plan`` answers: how many GPUs chat needs, what they harvest, when a batch is done.

A day of a trace is simulated in windows: the busiest, which decides how many engines it takes, and
some spread evenly over the trace, which say what a day harvests beside it.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from engine_adapter.gpu_tables.gpu_table import gpu_table_names
from engine_adapter.scheduling.policies.registry import create_policy
from engine_adapter.scheduling.policies.settings import DEFAULT_POLICY
from engine_adapter.scheduling.targets import Slo
from lab.policies.registry import NAMES
from lab.simulator.device import EngineSize, SimulatedDevice, find_device
from lab.simulator.fleet import MOST_ENGINES, ROUTERS, replay_fleet
from lab.simulator.replay import SimulatedLoad
from lab.workload.files import find_workload
from lab.workload.lengths import fixed_lengths
from lab.workload.summary import SystemRun, gaps_s, offline_rate, ttfts_s
from lab.workload.traces import (
    TraceRequest,
    check_context,
    clip_lengths,
    read_trace,
    stretch,
    window,
)
from service.percentiles import attained

DAY_S = 86_400.0
ENOUGH = 0.99
"""Share of first tokens and of gaps that have to be in time."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is to be planned.

    Attributes:
        device: What each engine runs on.
        requests: Chat.
        slo: Its targets.
        policy: Of the engines.
        router: Of the gateway.
        batch: Prompt and answer tokens of an offline request.
        rows: Requests of the batch whose end is asked for; 0 asks for none.
        window_s: Length of each window.
        windows: How many, beside the busiest.
        most: Engines at most.
    """

    device: SimulatedDevice
    requests: list[TraceRequest]
    slo: Slo
    policy: str
    router: str
    batch: tuple[int, int]
    rows: int
    window_s: float
    windows: int
    most: int


@dataclass(frozen=True, slots=True)
class Answer:
    """What comes out.

    Attributes:
        engines: How many chat needs; 0 if the most were not enough.
        busiest_at_s: Where in the trace the busiest window begins.
        alone: Shares of first tokens and of gaps in time there, without offline work.
        beside: The same with it, over all windows.
        tokens_per_day: Offline tokens that all engines compute in a day beside chat.
        batch_hours: Until the batch is done; infinite if nothing is harvested, 0 if not asked.
    """

    engines: int
    busiest_at_s: float
    alone: tuple[float, float]
    beside: tuple[float, float]
    tokens_per_day: float
    batch_hours: float


Say = Callable[[str], None]


def answer(asked: Question, say: Say = lambda line: None) -> Answer:
    """Find the fewest engines, then what they harvest."""
    end_s = asked.requests[-1].arrival_s
    busiest_s = _busiest(asked)
    shares = (0.0, 0.0)
    low, engines = 0, 1
    while True:
        shares = _in_time([_play(asked, busiest_s, engines, offline=False)], asked.slo)
        say(f"{engines} engines: {shares[0]:.1%} of first tokens, {shares[1]:.1%} of gaps in time")
        if min(shares) >= ENOUGH:
            break
        low = engines
        if engines == asked.most:
            return Answer(0, busiest_s, shares, (0.0, 0.0), 0.0, math.inf)
        engines = min(2 * engines, asked.most)
    while engines - low > 1:
        middle = (low + engines) // 2
        found = _in_time([_play(asked, busiest_s, middle, offline=False)], asked.slo)
        say(f"{middle} engines: {found[0]:.1%} of first tokens, {found[1]:.1%} of gaps in time")
        low, engines, shares = (
            (low, middle, found) if min(found) >= ENOUGH else (middle, engines, shares)
        )
    room_s = max(0.0, end_s - asked.window_s)
    begins = [room_s * i / max(1, asked.windows - 1) for i in range(asked.windows)]
    runs = []
    for begin_s in begins:
        runs.append(_play(asked, begin_s, engines, offline=True))
        say(f"window at {begin_s:,.0f} s: {offline_rate(runs[-1]):,.0f} offline tokens a second")
    rate = sum(map(offline_rate, runs)) / len(runs)
    hours = asked.rows * sum(asked.batch) / rate / 3600.0 if rate else math.inf
    beside = _in_time(runs, asked.slo)
    return Answer(engines, busiest_s, shares, beside, rate * DAY_S, hours if asked.rows else 0.0)


def _busiest(asked: Question) -> float:
    """Where the window with the most tokens begins; windows begin with a request."""
    requests, total, best, best_at_s, first = asked.requests, 0, -1, 0.0, 0
    for request in requests:
        total += request.input_tokens + request.output_tokens
        while request.arrival_s - requests[first].arrival_s >= asked.window_s:
            total -= requests[first].input_tokens + requests[first].output_tokens
            first += 1
        if total > best:
            best, best_at_s = total, requests[first].arrival_s
    return best_at_s


def _play(asked: Question, begin_s: float, engines: int, *, offline: bool) -> SystemRun:
    load = SimulatedLoad(
        online=window(asked.requests, begin_s, asked.window_s),
        offline=fixed_lengths(*asked.batch) if offline else None,
        num_outstanding=asked.device.shape.total_slots,
        duration_s=asked.window_s,
        lead_s=asked.window_s / 4.0 if offline else 0.0,
    )
    name = asked.policy if offline else "online_only"
    return replay_fleet(
        asked.device,
        lambda: create_policy(name, asked.device.model),
        load,
        asked.slo,
        engines=engines,
        router=asked.router,
    )


def _in_time(runs: list[SystemRun], slo: Slo) -> tuple[float, float]:
    """Shares of first tokens and of gaps in time; of nothing, all are."""
    ttft = [value for run in runs for value in ttfts_s(run)]
    gaps = [value for run in runs for value in gaps_s(run)]
    first, between = attained(ttft, slo.ttft_s), attained(gaps, slo.tbt_s)
    return 1.0 if first is None else first, 1.0 if between is None else between


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="coserve plan",
        description="How many GPUs chat needs at these targets, how many tokens a day they harvest "
        "beside it, and by when a batch is done; simulated.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = made.add_argument
    add("--online", required=True, help="trace CSV of chat: arrival_s,input_tokens,output_tokens")
    add(
        "--device",
        default="h100-llama-3.1-8b",
        help="the file of a table or of a profile, or one of " + ", ".join(gpu_table_names()),
    )
    add("--ttft-ms", type=float, default=1500.0, help="target of first tokens")
    add("--tbt-ms", type=float, default=100.0, help="target of gaps between tokens")
    add("--scale", type=float, default=1.0, help="stretch of arrivals; 0.5 doubles the rate")
    add("--clip", action="store_true", help="shorten requests that are beyond the context")
    add("--batch-rows", type=int, default=0, help="rows of a batch whose end is asked for")
    add("--batch-input-tokens", type=int, default=2048)
    add("--batch-output-tokens", type=int, default=128)
    add("--policy", default=DEFAULT_POLICY, help="of the engines")
    add("--router", default="least-load", help="of the gateway: " + ", ".join(ROUTERS))
    add("--window", type=float, default=60.0, help="seconds of each simulated window")
    add("--windows", type=int, default=6, help="windows over the trace, beside the busiest")
    add("--most", type=int, default=MOST_ENGINES, help="engines at most")
    return made


def read_question(argv: list[str] | None = None) -> Question:
    """Read the command line.

    Raises:
        ValueError: In one sentence, naming the option or the file.
    """
    args = parser().parse_args(argv)
    for name in (
        "ttft_ms", "tbt_ms", "scale", "window", "windows", "batch_input_tokens",
        "batch_output_tokens",
    ):  # fmt: skip
        if not 0 < getattr(args, name) < math.inf:
            raise ValueError(f"--{name.replace('_', '-')} has to be above 0")
    if args.batch_rows < 0:
        raise ValueError("--batch-rows has to be 0 or more")
    if not 1 <= args.most <= MOST_ENGINES:
        raise ValueError(f"--most is {args.most}; it has to be 1 to {MOST_ENGINES} engines")
    if args.router not in ROUTERS:
        raise ValueError(f"unknown router {args.router!r}; choose among {', '.join(ROUTERS)}")
    policy = args.policy.replace("-", "_")
    if policy not in NAMES:
        raise ValueError(f"unknown policy {args.policy!r}; choose among {', '.join(NAMES)}")
    device = find_device(args.device, EngineSize())
    path = find_workload(args.online, "online")
    assert path is not None
    requests = _read(path, device, clip=args.clip)
    longest = args.batch_input_tokens + args.batch_output_tokens
    if longest > device.max_context:
        raise ValueError(
            f"--batch-input-tokens and --batch-output-tokens make {longest} tokens, more than the "
            f"{device.max_context} of the engine's context"
        )
    return Question(
        device=device,
        requests=stretch(requests, args.scale),
        slo=Slo(args.ttft_ms / 1e3, args.tbt_ms / 1e3),
        policy=policy,
        router=args.router,
        batch=(args.batch_input_tokens, args.batch_output_tokens),
        rows=args.batch_rows,
        window_s=args.window,
        windows=args.windows,
        most=args.most,
    )


def _read(path: Path, device: SimulatedDevice, *, clip: bool) -> list[TraceRequest]:
    requests, longest = read_trace(path), device.max_context
    if clip:
        return clip_lengths(requests, longest - longest // 4, longest // 4).requests
    check_context(path, requests, longest)
    return requests


def told(asked: Question, found: Answer) -> str:
    if not found.engines:
        return (
            f"{asked.most} engines are not enough: {found.alone[0]:.1%} of first tokens and "
            f"{found.alone[1]:.1%} of gaps are in time at {found.busiest_at_s:,.0f} s of the trace"
        )
    lines = [
        f"engines for chat alone     {found.engines}",
        f"  at its busiest           {found.busiest_at_s:,.0f} s into the trace: "
        f"{found.alone[0]:.1%} of first tokens, {found.alone[1]:.1%} of gaps in time",
        f"offline tokens a day       {found.tokens_per_day:,.0f}",
        f"  chat beside it           {found.beside[0]:.1%} of first tokens, "
        f"{found.beside[1]:.1%} of gaps in time",
    ]
    if asked.rows:
        when = "never" if math.isinf(found.batch_hours) else f"in {found.batch_hours:,.1f} hours"
        lines.append(f"the batch of {asked.rows:,} is done {when}")
    lines.append(f"simulated: {asked.device.about}; {asked.policy}, {asked.router}")
    return "\n".join(lines)


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def main(argv: list[str] | None = None) -> int:
    """Ask, answer, print.

    Returns:
        0 with an answer, 1 if the most engines are not enough, 2 for what cannot be planned.
    """
    try:
        asked = read_question(argv)
        found = answer(asked, _say)
    except (ValueError, OSError) as refused:
        sys.stderr.write(f"{refused}\n")
        return 2
    sys.stdout.write(f"{told(asked, found)}\n")
    return 0 if found.engines else 1


if __name__ == "__main__":
    sys.exit(main())
