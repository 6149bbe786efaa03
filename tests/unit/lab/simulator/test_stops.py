"""A stop frees the simulated device when it frees the emulated one."""

from __future__ import annotations

import random

import pytest

from engine_adapter.scheduling.derive import safepoint_groups, stopped_before_layer
from engine_adapter.scheduling.latency import Coefficients, PolynomialModel
from engine_adapter.scheduling.plan import (
    Arrival,
    Chunk,
    Decision,
    RunningStep,
    SafepointMode,
    Safepoints,
    StepPlan,
)
from engine_adapter.scheduling.request import Request, RequestClass
from engine_adapter.scheduling.snapshot import EngineLimits
from engine_adapter.scheduling.targets import Slo
from engine_adapter.sglang.cuda_pass import RunAhead
from lab.emulated.timeline import Timeline
from lab.simulator.engine import MemoryEngine
from lab.simulator.shape import EngineShape
from lab.simulator.times import ProfiledTimes

MS_PER_TOKEN = Coefficients(0.001, 0, 0, 0, 0, 0.010)
INTERVAL_S = 0.004


def stop_always(_arrival: Arrival, _step: RunningStep) -> Decision:
    return Decision.STOP_AT_NEXT_SAFEPOINT


def simulated(duration_s: float, word_s: float, layers: int, most_groups: int) -> float | None:
    """When the simulator's device is free; None: the pass was not stopped."""
    num_tokens = round((duration_s - 0.010) * 1000)
    model = PolynomialModel(MS_PER_TOKEN, MS_PER_TOKEN, MS_PER_TOKEN)
    limits = EngineLimits(num_layers=layers, prefill_safepoints=True, max_chunk_tokens=9999)
    shape = EngineShape(most_groups=most_groups, limits=limits)
    engine = MemoryEngine(shape, Slo(1.0, 0.1), ProfiledTimes(model), stop_always)
    offline = Request("off", RequestClass.OFFLINE, prompt_tokens=num_tokens, fill_tokens=num_tokens)
    engine.submit(offline)
    online = Request("on", RequestClass.ONLINE, prompt_tokens=8, fill_tokens=8, arrival_at_s=word_s)
    engine.submit(online)
    engine.snapshot()
    armed = Safepoints(SafepointMode.ABORT, INTERVAL_S)
    engine.apply(StepPlan(0, (), (Chunk("off", num_tokens),), safepoints=armed, predicted_s=0.1))
    return engine.now_s if engine.num_stops else None


def emulated(duration_s: float, word_s: float, layers: int, most_groups: int) -> float | None:
    """The same of the emulated device, whose host launches as CUDA's does."""
    now_s = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now_s
        now_s += seconds

    timeline = Timeline(lambda: now_s, sleep)
    ahead = RunAhead(timeline.mark, sleep=timeline.approach)
    every, groups = safepoint_groups(INTERVAL_S, 0.1, layers, most_groups)
    ahead.begin(groups)
    timeline.begin(duration_s)
    for layer in range(layers):
        safepoint = layer and layer % every == 0
        if safepoint and ahead.at_safepoint(lambda: now_s >= word_s):
            return timeline.free_at_s
        timeline.launch((layer + 1) / layers)
    return None


@pytest.mark.parametrize("most_groups", [1, 2])
def test_simulator_and_emulated_device_are_free_at_the_same_instant(most_groups: int) -> None:
    dice = random.Random(most_groups)
    stopped = 0
    for _ in range(200):
        layers = dice.choice([2, 16, 32, 64])
        duration_s = dice.randrange(20, 200) / 1000
        word_s = dice.uniform(0.0, duration_s)
        free_s = simulated(duration_s, word_s, layers, most_groups)
        assert free_s == pytest.approx(emulated(duration_s, word_s, layers, most_groups), abs=1e-9)
        stopped += free_s is not None
    assert stopped > 100


@pytest.mark.parametrize("most_groups", [1, 2])
def test_a_stop_frees_the_device_within_its_interval(most_groups: int) -> None:
    """Where two layers take no longer than that, with or without groups that are launched ahead."""
    for step_ms in range(10, 60):
        step_s = step_ms / 1000
        every, groups = safepoint_groups(INTERVAL_S, step_s, 32, most_groups)
        for place in range(100):
            word_s = step_s * place / 100
            free_s = stopped_before_layer(word_s, step_s, 32, every, groups) * step_s / 32
            assert word_s < free_s <= word_s + INTERVAL_S + 1e-9
