"""Prompts on some engines, answers on others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine_adapter.scheduling.derive import default_slo
from engine_adapter.scheduling.policies.registry import create_policy
from lab.simulator.device import EngineSize, SimulatedDevice, find_device
from lab.simulator.options import parse_options
from lab.simulator.replay import SimulatedLoad, replay
from lab.simulator.two_pools import TwoPools
from lab.workload.arrivals import poisson_arrivals
from lab.workload.lengths import fixed_lengths
from lab.workload.summary import SystemRun, gaps_s, offline_rate
from lab.workload.traces import TraceRequest

SIZE = EngineSize(slots=32, chunk_tokens=512, kv_tokens=6_000)


@pytest.fixture(scope="module")
def device() -> SimulatedDevice:
    return find_device("h200-llama-3.1-8b", SIZE)


def load(**changed: object) -> SimulatedLoad:
    online = [TraceRequest(at_s, 400, 20) for at_s in poisson_arrivals(12.0, 4.0, seed=3)]
    made = SimulatedLoad(online, fixed_lengths(700, 30), 20, duration_s=4.0, lead_s=1.0)
    return replace(made, **changed)  # type: ignore[arg-type]


def play(device: SimulatedDevice, made: SimulatedLoad, engines: int = 2) -> SystemRun:
    return TwoPools(
        device,
        lambda: create_policy("distserve", device.model),
        made,
        default_slo(device.model),
        engines=engines,
    ).replay()


@pytest.mark.parametrize("engines", [2, 3, 5])
def test_every_request_is_answered_once_and_runs_repeat(
    device: SimulatedDevice, engines: int
) -> None:
    first, second = (play(device, load(), engines) for _ in range(2))
    online = first.result.online
    assert [r.name for r in online] == [f"online-{i}" for i in range(len(load().online))]
    assert all(len(record.token_times_s) == 20 for record in online)
    assert all(record.token_times_s == sorted(record.token_times_s) for record in online)
    assert [r.token_times_s for r in online] == [r.token_times_s for r in second.result.online]
    assert offline_rate(first) > 0.0


def test_prompts_never_hold_up_answers(device: SimulatedDevice) -> None:
    """One engine that gives prompts a step of their own makes readers wait; two pools do not."""
    made = load(offline=None, num_outstanding=0)
    policy = create_policy("vllm_swap", device.model)
    alone = replay(device, policy, made, default_slo(device.model))
    assert max(gaps_s(alone)) > 2.0 * sorted(gaps_s(play(device, made)))[-len(made.online) - 1]


def test_what_ends_with_its_first_token_needs_no_second_engine(device: SimulatedDevice) -> None:
    online = [TraceRequest(0.1 * i, 300, 1) for i in range(5)]
    run = play(device, load(online=online, offline=None, num_outstanding=0))
    assert [len(record.token_times_s) for record in run.result.online] == [1] * 5


def test_kv_that_finds_no_room_waits_and_goes_on(device: SimulatedDevice) -> None:
    """Forty prompts of 1,000 tokens at once: several times what both pools hold."""
    online = [TraceRequest(0.0, 1_000, 60) for _ in range(40)]
    run = play(device, load(online=online, offline=None, num_outstanding=0))
    assert all(len(record.token_times_s) == 60 for record in run.result.online)


def test_one_engine_is_refused(device: SimulatedDevice) -> None:
    with pytest.raises(ValueError, match="distserve has two pools of engines: --fleet"):
        parse_options(["--policies", "distserve"])
    with pytest.raises(ValueError, match="there are 1 engines, not 2 or more"):
        play(device, load(), engines=1)
