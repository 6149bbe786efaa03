"""Online requests that fill the KV by themselves: whoever holds pages, the oldest goes on."""

from __future__ import annotations

import random

import pytest

from engine_adapter.scheduling.driver import Driver
from engine_adapter.scheduling.latency import PolynomialModel
from engine_adapter.scheduling.policies.registry import create_policy
from engine_adapter.scheduling.request import Request, RequestClass
from engine_adapter.scheduling.targets import Slo
from lab.simulator.engine import MemoryEngine
from lab.simulator.run import run
from lab.simulator.shape import EngineShape
from lab.simulator.times import ProfiledTimes

NUM_REQUESTS = 7


@pytest.mark.parametrize("name", ["conserve_v1", "conserve_v2"])
@pytest.mark.parametrize("delay_steps", [0, 1])
@pytest.mark.parametrize("seed", range(12))
def test_requests_that_are_fetched_do_not_hold_pages_against_the_others(
    name: str, delay_steps: int, seed: int, model: PolynomialModel
) -> None:
    chance = random.Random(seed)
    shape = EngineShape(
        total_pages=400,
        page_tokens=1,
        total_slots=8,
        reserved_share=0.0,
        copy_pages_per_step=2,
        delay_steps=delay_steps,
    )
    engine = MemoryEngine(shape, Slo(0.2, 0.05), ProfiledTimes(model))
    for i in range(NUM_REQUESTS):
        prompt = chance.randint(20, 300)
        request = Request(f"r{i}", RequestClass.ONLINE, prompt, prompt)
        request.max_output_tokens = chance.randint(20, 95)
        request.arrival_at_s = 3.0 * chance.random()
        engine.submit(request)
    run(engine, Driver(create_policy(name, model)), until_s=500.0, max_idle_steps=50)
    assert len(engine.finished) == NUM_REQUESTS
