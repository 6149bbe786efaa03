"""Several engines behind one router."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine_adapter.scheduling.derive import default_slo
from engine_adapter.scheduling.policies.registry import create_policy
from lab.simulator.device import EngineSize, SimulatedDevice, find_device
from lab.simulator.fleet import ROUTERS, make_router, replay_fleet
from lab.simulator.replay import SharedPrefixes, SimulatedLoad, replay
from lab.workload.arrivals import poisson_arrivals
from lab.workload.lengths import fixed_lengths
from lab.workload.summary import SystemRun, offline_rate, ttfts_s
from lab.workload.traces import TraceRequest

SIZE = EngineSize(slots=32, chunk_tokens=512, kv_tokens=20_000)


@pytest.fixture(scope="module")
def device() -> SimulatedDevice:
    return find_device("h200-llama-3.1-8b", SIZE)


def load(rate: float = 12.0, **changed: object) -> SimulatedLoad:
    online = [TraceRequest(at_s, 400, 20) for at_s in poisson_arrivals(rate, 4.0, seed=3)]
    made = SimulatedLoad(online, fixed_lengths(700, 30), 20, duration_s=4.0, lead_s=1.0)
    return replace(made, **changed)  # type: ignore[arg-type]


def play(device: SimulatedDevice, made: SimulatedLoad, engines: int, router: str) -> SystemRun:
    return replay_fleet(
        device,
        lambda: create_policy("conserve_v1", device.model),
        made,
        default_slo(device.model),
        engines=engines,
        router=router,
    )


@pytest.mark.parametrize("router", ROUTERS)
def test_every_request_is_answered_once_and_runs_repeat(
    device: SimulatedDevice, router: str
) -> None:
    made = load()
    first, second = (play(device, load(), 3, router) for _ in range(2))
    assert [r.name for r in first.result.online] == [f"online-{i}" for i in range(len(made.online))]
    assert all(len(record.token_times_s) == 20 for record in first.result.online)
    assert [r.token_times_s for r in first.result.online] == [
        r.token_times_s for r in second.result.online
    ]


def test_a_fleet_of_one_is_an_engine(device: SimulatedDevice) -> None:
    alone = replay(
        device,
        create_policy("conserve_v1", device.model),
        load(),
        default_slo(device.model),
    )
    fleet = play(device, load(), 1, "least-load")
    assert offline_rate(fleet) == pytest.approx(offline_rate(alone), rel=0.1)
    assert max(ttfts_s(fleet)) == pytest.approx(max(ttfts_s(alone)), abs=0.1)


def test_more_engines_harvest_more(device: SimulatedDevice) -> None:
    rates = [offline_rate(play(device, load(), engines, "least-load")) for engines in (1, 3)]
    assert rates[1] > 2.0 * rates[0]


def test_one_long_prompt_delays_its_engine_alone(device: SimulatedDevice) -> None:
    """Round robin gives every third request to the engine that is busy; the others look."""
    made = load(rate=6.0, offline=None, num_outstanding=0)
    online = [TraceRequest(0.0, 15_000, 50), *made.online]
    waits = {}
    for router in ROUTERS:
        run = play(device, replace(made, online=online), 3, router)
        waits[router] = sum(ttfts_s(run)[1:])
    assert waits["least-load"] < waits["round-robin"]
    assert waits["slack"] < waits["round-robin"]


def test_prompts_that_begin_alike_meet_on_one_engine(device: SimulatedDevice) -> None:
    made = load(offline=None, num_outstanding=0, online_prefixes=SharedPrefixes(256, 7))
    cached = {}
    for router in ("round-robin", "prefix"):
        run = play(device, made, 4, router)
        cached[router] = sum(record.cached_tokens for record in run.result.online)
    assert cached["prefix"] > cached["round-robin"] > 0


def test_an_unknown_router_is_one_sentence(device: SimulatedDevice) -> None:
    with pytest.raises(ValueError, match="unknown router 'x'; choose among round-robin"):
        make_router("x", load(), device.model, default_slo(device.model))
