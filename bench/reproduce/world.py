"""One simulated run: what a paper set up, under one policy, and the figures papers speak of."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from bench.reproduce.variants import VARIANTS
from engine_adapter.scheduling.latency import StepLoad
from engine_adapter.scheduling.plan import Arrival, Decision, FinishedStep, RunningStep, StepPlan
from engine_adapter.scheduling.policies.base import SchedulingPolicy
from engine_adapter.scheduling.policies.registry import create_policy
from engine_adapter.scheduling.policies.settings import PolicySettings
from engine_adapter.scheduling.snapshot import Snapshot
from engine_adapter.scheduling.targets import DEFAULT_SHARE, Slo
from lab.policies.registry import POLICIES, TWO_POOLS
from lab.simulator.device import EngineSize, SimulatedDevice, find_device
from lab.simulator.replay import SimulatedLoad, replay
from lab.simulator.times import Noise, StepTimes
from lab.simulator.two_pools import TwoPools
from lab.workload.arrivals import gamma_arrivals, on_off_arrivals
from lab.workload.summary import SystemRun, gaps_s, offline_rate, tpots_s, ttfts_s
from lab.workload.traces import TraceRequest
from service.percentiles import attained, percentile

Figures = dict[str, float]
LOOSE = Slo(1000.0, 1000.0)
"""Shown to policies of set-ups without targets."""
Z99 = 2.326


@dataclass(frozen=True)
class Spread:
    """A log-normal law of lengths by its mean and its spread, cut to a range.

    Attributes:
        mean: Mean.
        sigma: Of the logarithm; 0 is always the mean.
        least, most: The range.
    """

    mean: float
    sigma: float = 0.0
    least: int = 1
    most: int = 1 << 20

    @classmethod
    def by_p99(cls, mean: float, p99: float, most: int = 1 << 20) -> Spread:
        """From the mean and the 99th percentile."""
        return cls(mean, Z99 - math.sqrt(Z99 * Z99 - 2.0 * math.log(p99 / mean)), most=most)

    @classmethod
    def by_deviation(cls, mean: float, deviation: float, most: int = 1 << 20) -> Spread:
        """From the mean and the standard deviation."""
        return cls(mean, math.sqrt(math.log(1.0 + (deviation / mean) ** 2)), most=most)

    def draw(self, chance: random.Random) -> int:
        """One length."""
        if not self.sigma:
            return round(self.mean)
        drawn = chance.lognormvariate(math.log(self.mean) - self.sigma**2 / 2.0, self.sigma)
        return max(self.least, min(self.most, round(drawn)))


@dataclass(frozen=True)
class Job:
    """Lengths of prompts and answers of one kind of request."""

    inputs: Spread
    outputs: Spread

    def draw(self, chance: random.Random) -> tuple[int, int]:
        """One request."""
        return self.inputs.draw(chance), self.outputs.draw(chance)


@dataclass(frozen=True)
class Setup:
    """What a paper put up.

    Attributes:
        device: Step table.
        kv_tokens: KV pool; 0 takes what the device has.
        rate: Online requests a second.
        cv: Variation of their gaps.
        online: Their lengths.
        offline: Kinds of offline requests, drawn alike; none without.
        outstanding: Offline requests always outstanding.
        duration_s, lead_s: Window, and offline load before it.
        on_off_s: Phases of arrivals, on first; always on without.
        chunk_tokens: Most prompt tokens of a step.
        slots: Request slots.
        predictor: Who expects the lengths of answers.
        trace: Online requests instead of drawn ones.
        page_tokens: Tokens of a page of the KV pool.
        output_bound: ``max_tokens`` of every request.
        give_way_s: Time for which each request that gives way holds the engine up.
        noise: Spread of step times.
    """

    device: str
    online: Job
    kv_tokens: int = 0
    rate: float = 2.0
    cv: float = 1.0
    offline: tuple[Job, ...] = ()
    outstanding: int = 256
    duration_s: float = 30.0
    lead_s: float = 10.0
    on_off_s: tuple[float, ...] = ()
    chunk_tokens: int = 2048
    slots: int = 256
    predictor: str = "noisy_oracle:0.75"
    trace: tuple[TraceRequest, ...] = ()
    page_tokens: int = 1
    output_bound: int = 2048
    give_way_s: float = 0.0
    noise: float = 0.0


def arrivals(setup: Setup, seed: int) -> list[TraceRequest]:
    """Online requests of a window, spread over all of it."""
    if setup.trace:
        return list(setup.trace)
    chance = random.Random(f"online/{seed}")
    if setup.on_off_s:
        instants = on_off_arrivals(setup.rate, setup.on_off_s, seed, setup.cv)
    else:
        instants = gamma_arrivals(setup.rate, setup.cv, setup.duration_s, seed)
    made = [TraceRequest(at_s, *setup.online.draw(chance)) for at_s in instants]
    if not made or made[-1].arrival_s < setup.duration_s / 2.0:
        raise ValueError(f"{len(made)} arrivals in the first half of {setup.duration_s} s only")
    return made


def device_of(setup: Setup) -> SimulatedDevice:
    """The device, as large as the paper's."""
    size = EngineSize(setup.kv_tokens, slots=setup.slots, chunk_tokens=setup.chunk_tokens)
    device = find_device(setup.device, size)
    pages = device.shape.total_pages // setup.page_tokens
    shape = replace(device.shape, total_pages=pages, page_tokens=setup.page_tokens)
    return replace(device, shape=shape)


class Charged:
    """A policy under which every request that gives way holds the engine up for a time.

    Both the policy and its device's step times: the step that takes the memory is the longer one.
    """

    def __init__(self, policy: SchedulingPolicy, times: StepTimes, give_way_s: float) -> None:
        """Nobody has given way."""
        self.name = policy.name
        self._policy, self._times = policy, times
        self._give_way_s, self._owed_s = give_way_s, 0.0

    def plan(self, snapshot: Snapshot) -> StepPlan:
        """As the policy has it."""
        made = self._policy.plan(snapshot)
        self._owed_s += self._give_way_s * len(made.retracts)
        return made

    def at_arrival(self, arrival: Arrival, step: RunningStep) -> Decision:
        """As the policy has it."""
        return self._policy.at_arrival(arrival, step)

    def observe(self, step: FinishedStep) -> None:
        """As the policy has it."""
        self._policy.observe(step)

    def step_s(self, load: StepLoad, chunks: Sequence[tuple[int, int]]) -> float:
        """What the step takes, and what is owed for those that gave way."""
        owed_s, self._owed_s = self._owed_s, 0.0
        return self._times.step_s(load, chunks) + owed_s


def make_policy(
    name: str, device: SimulatedDevice, settings: PolicySettings | None = None
) -> SchedulingPolicy:
    """A policy by name, or one with other constants: ``ecoserve:padding=0.2,reserve=0.05``."""
    base, _, changed = name.partition(":")
    if not changed and base not in VARIANTS:
        return create_policy(base, device.model, settings)
    pairs = (pair.split("=") for pair in changed.split(",") if pair)
    values = {key: float(value) for key, value in pairs}
    made = VARIANTS.get(base) or POLICIES[base]
    assert isinstance(made, type)
    for key in values:
        if not hasattr(made, key):
            raise ValueError(f"{base} has no constant {key!r}")
    other: SchedulingPolicy = type(made.__name__, (made,), values)(device.model, settings)
    return other


def play(
    setup: Setup,
    policy: str,
    slo: Slo,
    seed: int,
    settings: PolicySettings | None = None,
) -> SystemRun:
    device = device_of(setup)
    offline = None
    if setup.offline and policy != "online_only":
        offline = _offline(setup, seed)
    load = SimulatedLoad(
        online=arrivals(setup, seed),
        offline=offline,
        num_outstanding=setup.outstanding,
        duration_s=setup.duration_s,
        lead_s=setup.lead_s,
        predictor=setup.predictor,
        output_bound=setup.output_bound,
    )
    if policy in TWO_POOLS:
        return TwoPools(device, lambda: make_policy(policy, device, settings), load, slo).replay()
    made = make_policy(policy, device, settings)
    if setup.give_way_s:
        charged = Charged(made, device.times, setup.give_way_s)
        made, device = charged, replace(device, times=charged)
    return replay(device, made, load, slo, noise=Noise(setup.noise, seed=seed))


def _offline(setup: Setup, seed: int) -> Iterator[tuple[int, int]]:
    chance = random.Random(f"offline/{seed}")
    while True:
        yield chance.choice(setup.offline).draw(chance)


def measure(run: SystemRun, slo: Slo | None = None, scales: Sequence[float] = (1.0,)) -> Figures:
    """The figures of a run; attainment at each multiple of the targets."""
    ttft, gaps, pace = ttfts_s(run), gaps_s(run), tpots_s(run)
    online = run.result.online
    measured_s = run.result.duration_s
    done = [r for r in run.result.offline if r.done and 0.0 <= r.token_times_s[-1] < measured_s]
    online_tokens = sum(record.tokens_within(0.0, measured_s) for record in online)
    jct = [
        (r.token_times_s[-1] if r.done else r.given_up_s or measured_s) - r.scheduled_s
        for r in online
    ]
    lengths = [max(1, len(record.token_times_s)) for record in online]
    found = {
        "ttft_p99": percentile(ttft, 0.99),
        "ttft_mean": sum(ttft) / len(ttft),
        "tbt_p99": percentile(gaps, 0.99) if gaps else math.inf,
        "tpot_p99": percentile(pace, 0.99) if pace else math.inf,
        "tbt_mean": sum(gaps) / max(1, len(gaps)),
        "jct_mean": sum(jct) / len(jct),
        "normalised": sum(j / n for j, n in zip(jct, lengths, strict=True)) / len(jct),
        "throughput": sum(record.done for record in online) / max(1e-9, _last_end_s(run)),
        "offline": offline_rate(run),
        "overall": offline_rate(run) + online_tokens / measured_s,
        "offline_requests": len(done) / measured_s,
        "retracts": float(run.counters["retracts"]),
        "recomputed": float(run.counters["recomputed_tokens"]),
        "busy": float(run.counters["busy_s"]) / measured_s,
    }
    if slo is not None:
        for scale in scales:
            found[f"ttft_in_time@{scale:g}"] = attained(ttft, slo.ttft_s * scale) or 0.0
            found[f"tbt_in_time@{scale:g}"] = attained(gaps, slo.tbt_s * scale) or 0.0
            found[f"tpot_in_time@{scale:g}"] = attained(pace, slo.tbt_s * scale) or 0.0
    return found


def _last_end_s(run: SystemRun) -> float:
    return max((r.token_times_s[-1] for r in run.result.online if r.token_times_s), default=0.0)


def compare(
    setup: Setup,
    policies: Mapping[str, tuple[str, PolicySettings | None]],
    seed: int,
    scale: float = 1.0,
    scales: Sequence[float] = (1.0,),
    share: float = DEFAULT_SHARE,
) -> dict[str, Figures]:
    """Policies over the same arrivals; targets are a multiple of online-only's own P99.

    ``share`` of the steps is to end within what they leave.
    """
    alone = play(setup, "online_only", LOOSE, seed)
    figures = {"online_only": measure(alone)}
    own = figures["online_only"]
    slo = Slo(own["ttft_p99"], own["tbt_p99"], ttft_share=share, tbt_share=share)
    for name, (policy, settings) in policies.items():
        run = play(setup, policy, slo.scaled(scale), seed, settings)
        figures[name] = measure(run, slo, scales)
    return figures


@dataclass(frozen=True)
class Unloaded:
    """What a set-up's requests see when hardly any are there.

    Attributes:
        slo: Mean time to the first token, and between two.
        normalised: Mean normalised latency.
    """

    slo: Slo
    normalised: float


def unloaded(setup: Setup, seed: int) -> Unloaded:
    """A quarter of the load, under the policy without any order of its own."""
    figures = measure(play(replace(setup, rate=setup.rate / 4.0), "fastgen", LOOSE, seed))
    return Unloaded(Slo(figures["ttft_mean"], figures["tbt_mean"]), figures["normalised"])


FEWEST_ARRIVALS = 20
"""Of a window in which a rate is tried: a low one has a longer window."""
CLOSE = 0.25
"""A rate is found to this part of it."""
MOST_ROUNDS = 10


def sustained_rate(
    setup: Setup,
    policy: str,
    seed: int,
    most: float,
    quiet: Unloaded,
    *,
    tolerance: float = 2.0,
    rounds: int = 4,
) -> float:
    """Highest rate at which the mean normalised latency is within a multiple of the unloaded.

    Found by halving, until it is close. A policy that sustains none of the rates tried gets the
    lowest of them.
    """
    low, high = 0.0, most
    for number in range(MOST_ROUNDS):
        if number >= rounds and high - low <= CLOSE * low:
            break
        rate = (low + high) / 2.0
        duration_s = max(setup.duration_s, FEWEST_ARRIVALS / rate)
        tried = replace(setup, rate=rate, duration_s=duration_s)
        figures = measure(play(tried, policy, quiet.slo, seed))
        fits = figures["normalised"] <= tolerance * quiet.normalised
        low, high = (rate, high) if fits else (low, rate)
    return low or high
