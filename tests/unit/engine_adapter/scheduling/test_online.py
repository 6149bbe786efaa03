"""Which online prompts share a step: the oldest, and as many behind it as there is room for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from engine_adapter.scheduling.driver import Driver
from engine_adapter.scheduling.latency import PolynomialModel
from engine_adapter.scheduling.policies.conserve_v2 import ConserveV2
from engine_adapter.scheduling.policies.online_only import OnlineOnly
from engine_adapter.scheduling.request import Phase
from engine_adapter.scheduling.targets import Slo

if TYPE_CHECKING:
    from tests.unit.engine_adapter.conftest import World


def begun(world: World, policy: ConserveV2 | OnlineOnly) -> list[tuple[str, int]]:
    plan = Driver(policy).begin(world.snapshot()).plan
    return [(chunk.rid, chunk.num_tokens) for chunk in plan.prefill]


@pytest.mark.parametrize("policy", [ConserveV2, OnlineOnly])
def test_prompts_fill_the_step_oldest_first(
    world: World, model: PolynomialModel, policy: type[ConserveV2 | OnlineOnly]
) -> None:
    for i in range(7):
        world.online(f"p{i}", prompt=100)
    taken = begun(world, policy(model))
    assert taken == [("p0", 100), ("p1", 100), ("p2", 100), ("p3", 100), ("p4", 100)]


def test_where_steps_alternate_prompts_have_one_of_their_own(
    world: World, model: PolynomialModel
) -> None:
    world.slo = Slo(ttft_s=0.4, tbt_s=0.05)  # no time to cut prompts
    world.limit(can_mix=False)
    world.online("chat", phase=Phase.DECODE)
    world.online("p0", prompt=100)
    world.online("p1", prompt=22)
    driver = Driver(ConserveV2(model))
    plan = driver.begin(world.snapshot()).plan
    assert (plan.decode, [c.rid for c in plan.prefill]) == ((), ["p0", "p1"])
    assert driver.begin(world.snapshot()).plan.decode == ("chat",)
