"""Several engines behind one router.

Every engine is the engine in memory with a policy and an offline queue of its own; the router gives
each online request to one of them. As a gateway that asks engines for their load now and then, it
knows them as they were at the last tick, and what it has given out since.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any
from zlib import crc32

from engine_adapter.scheduling.latency import LatencyModel, StepLoad
from engine_adapter.scheduling.policies.base import SchedulingPolicy
from engine_adapter.scheduling.targets import Slo
from lab.simulator.device import SimulatedDevice
from lab.simulator.replay import Progress, Replay, SimulatedLoad
from lab.simulator.times import Noise
from lab.workload.harness import RunResult
from lab.workload.summary import SystemRun
from lab.workload.traces import TraceRequest

TICK_S = 0.25
MOST_ENGINES = 64
FULL = 2.0
"""Beyond so many times the mean load an engine loses the requests of its prefixes to another."""


@dataclass(slots=True)
class Member:
    """One engine as the router knows it.

    Attributes:
        replay: The engine.
        prompt_tokens: Online prompt tokens that wait there.
        answers: Online requests that are under way there.
    """

    replay: Replay
    prompt_tokens: int = 0
    answers: int = 0

    @property
    def load(self) -> int:
        """Tokens to compute before a newcomer, a decoding request counted as one per step."""
        return self.prompt_tokens + self.answers

    def poll(self) -> None:
        roster = self.replay.engine.roster
        online = [request for request in roster.requests.values() if request.is_online]
        self.prompt_tokens = sum(
            request.remaining_tokens for request in online if not request.output_tokens
        )
        self.answers = len(online)

    def give(self, request: TraceRequest) -> None:
        """Count a request that was just given to it."""
        self.prompt_tokens += request.input_tokens
        self.answers += 1


Choice = Callable[[int, TraceRequest, list[Member]], Member]


def round_robin(number: int, request: TraceRequest, members: list[Member]) -> Member:
    return members[number % len(members)]


def least_load(number: int, request: TraceRequest, members: list[Member]) -> Member:
    """The engine with the least to compute before the newcomer."""
    return min(members, key=lambda member: member.load)


def by_prefix(groups: int) -> Choice:
    """Requests whose prompts begin alike go to one engine, until that has far more than others."""

    def choose(number: int, request: TraceRequest, members: list[Member]) -> Member:
        name = f"group-{number % groups}" if groups else f"request-{number}"
        home = members[crc32(name.encode()) % len(members)]
        mean = sum(member.load for member in members) / len(members)
        if home.load > FULL * (mean + request.input_tokens):
            return least_load(number, request, members)
        return home

    return choose


def most_slack(model: LatencyModel, slo: Slo) -> Choice:
    """The engine whose first token for the newcomer is predicted earliest before its target."""

    def slack_s(member: Member, request: TraceRequest) -> float:
        load = StepLoad()
        load.add_chunk(member.prompt_tokens + request.input_tokens, 0)
        for _ in range(min(member.answers, 64)):
            load.add_decode(1024)
        return slo.ttft_s - model.predict(load)

    def choose(number: int, request: TraceRequest, members: list[Member]) -> Member:
        return max(members, key=lambda member: slack_s(member, request))

    return choose


ROUTERS = ("round-robin", "least-load", "prefix", "slack")


def make_router(name: str, load: SimulatedLoad, model: LatencyModel, slo: Slo) -> Choice:
    """A router by name.

    Raises:
        ValueError: If there is none of that name; one sentence with those there are.
    """
    if name == "prefix":
        return by_prefix(load.online_prefixes.groups)
    if name == "slack":
        return most_slack(model, slo)
    plain: dict[str, Choice] = {"round-robin": round_robin, "least-load": least_load}
    if name not in plain:
        raise ValueError(f"unknown router {name!r}; choose among {', '.join(ROUTERS)}")
    return plain[name]


def replay_fleet(  # noqa: PLR0913
    device: SimulatedDevice,
    make_policy: Callable[[], SchedulingPolicy],
    load: SimulatedLoad,
    slo: Slo,
    *,
    engines: int,
    router: str,
    make_noise: Callable[[int], Noise] | None = None,
    repeat: int = 0,
    progress: Progress | None = None,
) -> SystemRun:
    """Run a fleet over a load; each engine keeps ``num_outstanding`` offline requests.

    Args:
        device: What every engine runs on.
        make_policy: A fresh policy for each engine.
        load: What arrives at the router.
        slo: Targets shown to policies and router.
        engines: How many.
        router: Its name.
        make_noise: Factors on step times, by engine.
        repeat: Number of the run, kept with its result.
        progress: Told the simulated seconds since it was told last.
    """
    choose = make_router(router, load, device.model, slo)
    members = []
    for number in range(engines):
        noise = make_noise(number) if make_noise else None
        alone = replace(load, online=())
        members.append(Member(Replay(device, make_policy(), alone, slo, noise)))
    collects = gc.isenabled()
    gc.disable()
    try:
        _run(members, choose, load, progress or (lambda _: None))
    finally:
        if collects:
            gc.enable()
    return merged([member.replay.result(repeat) for member in members])


def _run(members: list[Member], choose: Choice, load: SimulatedLoad, progress: Progress) -> None:
    at_s, place = -load.lead_s, 0
    opened = False
    while at_s < load.duration_s:
        if not opened and at_s >= 0.0:
            opened = True
            for member in members:
                member.replay.open()
        end_s = min(load.duration_s if opened else 0.0, at_s + TICK_S)
        for member in members:
            member.poll()
        while place < len(load.online) and load.online[place].arrival_s < end_s:
            request = load.online[place]
            chosen = choose(place, request, members)
            chosen.give(request)
            chosen.replay.arrive(place, request)
            place += 1
        for member in members:
            member.replay.advance(end_s)
        progress(end_s - at_s)
        at_s = end_s
    for member in members:
        if not opened:
            member.replay.open()
        member.replay.close()
        member.replay.drain()


def merged(runs: list[SystemRun]) -> SystemRun:
    """Runs of several engines as one; counts are added up."""
    first = runs[0]
    online = sorted(
        chain.from_iterable(run.result.online for run in runs), key=lambda r: r.scheduled_s
    )
    result = RunResult(
        online=online,
        offline=list(chain.from_iterable(run.result.offline for run in runs)),
        duration_s=first.result.duration_s,
        reading=sum(run.result.reading or 0 for run in runs),
    )
    counters: dict[str, Any] = {
        name: sum(run.counters[name] for run in runs) if isinstance(value, int | float) else value
        for name, value in first.counters.items()
    }
    return SystemRun(first.system, first.repeat, result, counters)
