"""What the papers claim about the policies, on the engine in memory.

The cost model has the shape of an 8B model on a large GPU: a step costs 8 ms plus 22 us per token
plus a little per token of context. Online: Poisson, 4 requests a second of 512/64 tokens. Offline:
a full queue of 2048/128. Only orderings and ratios are asserted, never absolute figures.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cache

import pytest

from engine_adapter.scheduling.driver import Driver
from engine_adapter.scheduling.latency import Coefficients, PolynomialModel
from engine_adapter.scheduling.policies.registry import create_policy
from engine_adapter.scheduling.policies.settings import PolicySettings
from engine_adapter.scheduling.request import Request, RequestClass
from engine_adapter.scheduling.snapshot import EngineLimits
from engine_adapter.scheduling.targets import Slo
from lab.simulator.engine import MemoryEngine
from lab.simulator.run import run
from lab.simulator.shape import EngineShape
from lab.simulator.times import ProfiledTimes
from lab.workload.arrivals import on_off_arrivals, poisson_arrivals
from service.percentiles import attained, percentile

K = Coefficients(
    k_token=22e-6, k_attention=3e-9, k_context=30e-9, k_square=0, k_request=0, k_constant=0.008
)
MODEL = PolynomialModel(K, K, K)
SLO = Slo(ttft_s=0.060, tbt_s=0.025)
LIMITS = EngineLimits(
    max_chunk_tokens=2048,
    prefill_safepoints=True,
    decode_safepoints=True,
    request_drop=True,
    num_layers=32,
)
SECONDS = 20.0


@dataclass(frozen=True)
class Seen:
    ttft_s: list[float]
    tbt_s: list[float]
    offline_per_s: float
    engine: MemoryEngine


def simulate(
    name: str,
    arrivals: list[float],
    *,
    pages: int = 16_000,
    checkpoints: bool = True,
    token_budget: int = 512,
) -> Seen:
    settings = PolicySettings(token_budget=token_budget, checkpoints=checkpoints)
    driver = Driver(create_policy(name, MODEL, settings))
    shape = EngineShape(
        total_pages=pages, host_total_pages=40_000, total_slots=64, copy_pages_per_step=200,
        delay_steps=1, limits=LIMITS,
    )  # fmt: skip
    engine = MemoryEngine(shape, SLO, ProfiledTimes(MODEL), driver.policy.at_arrival)
    for i, at_s in enumerate(arrivals):
        engine.submit(Request(f"on{i}", RequestClass.ONLINE, 512, 512, 64, arrival_at_s=at_s))
    if name != "online_only":
        for i in range(400):
            engine.submit(Request(f"off{i}", RequestClass.OFFLINE, 2048, 2048, 128))
    run(engine, driver, until_s=SECONDS)
    ttft = [
        engine.first_token_at[f"on{i}"] - at_s if f"on{i}" in engine.first_token_at else SECONDS
        for i, at_s in enumerate(arrivals)
        if at_s < SECONDS - 1.0
    ]
    gaps = [
        later - earlier
        for rid, times in engine.token_times.items()
        if rid.startswith("on")
        for earlier, later in itertools.pairwise(times)
    ]
    return Seen(ttft, gaps, engine.offline_tokens / engine.now_s, engine)


@cache
def steady(name: str) -> Seen:
    return simulate(name, poisson_arrivals(4.0, SECONDS, seed=11))


def p90(values: list[float]) -> float:
    return percentile(values, 0.9)


@pytest.mark.parametrize("name", ["conserve_v1", "conserve_v2"])
def test_online_requests_keep_nearly_the_latency_they_have_alone(name: str) -> None:
    alone, beside = steady("online_only"), steady(name)
    interval_s = SLO.ttft_s / 10
    assert p90(beside.ttft_s) <= p90(alone.ttft_s) + interval_s + SLO.tbt_s
    assert attained(beside.tbt_s, SLO.tbt_s * 1.25) == pytest.approx(1.0, abs=0.01)


def test_without_preemption_they_do_not() -> None:
    baseline, ours = steady("non_preemptive"), steady("conserve_v2")
    assert p90(baseline.ttft_s) > 2 * p90(ours.ttft_s)
    assert p90(baseline.tbt_s) > 2 * p90(ours.tbt_s)


def test_no_fixed_number_of_tokens_is_right() -> None:
    """Few tokens harvest little, many break the TBT target; a latency model needs no number."""
    ours = steady("conserve_v2")
    arrivals = poisson_arrivals(4.0, SECONDS, seed=11)
    few = simulate("sarathi_p", arrivals, token_budget=256)
    many = simulate("sarathi_p", arrivals, token_budget=1024)
    assert few.offline_per_s < 0.85 * ours.offline_per_s
    assert p90(many.tbt_s) > 1.3 * p90(ours.tbt_s)
    assert p90(few.ttft_s) > 1.2 * p90(ours.ttft_s)


def test_the_rest_of_the_engine_is_harvested() -> None:
    """At least 78 % of what an engine does that ignores latency (ConServe v2, section 6.3)."""
    assert steady("conserve_v2").offline_per_s > 0.78 * steady("non_preemptive").offline_per_s


def test_when_online_traffic_stops_the_pure_batch_rate_is_reached_at_once() -> None:
    """ON 5 s, OFF 10 s, ON 5 s: in the first second of silence at least 90 % of the pure rate."""
    pure = simulate("conserve_v2", [])
    seen = simulate("conserve_v2", on_off_arrivals(4.0, [5.0, 10.0, 5.0], seed=3))
    outputs = [t for rid, times in seen.engine.token_times.items() for t in times]
    online = [
        t for rid, times in seen.engine.token_times.items() if rid.startswith("on") for t in times
    ]
    quiet_from = max(t for t in online if t < 12.0)
    assert quiet_from < 10.0
    pure_outputs = [t for times in pure.engine.token_times.values() for t in times]
    rate = sum(1 for t in outputs if quiet_from < t <= quiet_from + 4.0) / 4.0
    pure_rate = sum(1 for t in pure_outputs if 4.0 < t <= 16.0) / 12.0
    assert rate > 0.9 * pure_rate
    # back on: no request waits longer than one alone plus an interval and a step
    alone = p90(steady("online_only").ttft_s)
    assert p90(seen.ttft_s) <= alone + SLO.ttft_s / 10 + SLO.tbt_s


def test_checkpoints_save_what_a_retract_would_lose() -> None:
    """Memory for about six requests, and online requests that need their pages."""
    arrivals = poisson_arrivals(4.0, SECONDS, seed=5)
    with_copies = simulate("conserve_v2", arrivals, pages=900)
    without = simulate("conserve_v2", arrivals, pages=900, checkpoints=False)
    assert with_copies.engine.restored_tokens > 0
    assert with_copies.engine.recomputed_tokens < 0.01 * with_copies.engine.restored_tokens
    assert without.engine.recomputed_tokens > 1000
    assert with_copies.offline_per_s > without.offline_per_s
