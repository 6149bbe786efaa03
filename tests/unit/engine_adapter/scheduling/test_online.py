"""Which online prompts share a step: 10 ms for the step and 1 ms for each token."""

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


def begun(world: World, policy: ConserveV2 | OnlineOnly) -> list[str]:
    return [chunk.rid for chunk in Driver(policy).begin(world.snapshot()).plan.prefill]


@pytest.mark.parametrize(
    ("lengths", "together"),
    [
        ([100, 100], 1),  # the first would wait 100 ms longer, the second 10 ms less
        ([100, 9], 2),
        ([100, 11], 1),
        ([4, 4, 4], 3),
        ([6, 6, 6], 2),  # the third would keep two waiting for 6 ms, and wait 10 ms less itself
        ([6, 6, 6, 6], 3),  # and the fourth with it
    ],
)
def test_a_prompt_joins_if_first_tokens_come_sooner_in_sum(
    world: World, model: PolynomialModel, lengths: list[int], together: int
) -> None:
    for i, length in enumerate(lengths):
        world.online(f"p{i}", prompt=length)
    assert begun(world, ConserveV2(model)) == [f"p{i}" for i in range(together)]


def test_a_long_queue_shares_steps(world: World, model: PolynomialModel) -> None:
    """Every prompt behind has its token a step's constant part sooner."""
    for i in range(10):
        world.online(f"p{i}", prompt=100)
    assert begun(world, ConserveV2(model)) == ["p0"]
    for i in (10, 11):
        world.online(f"p{i}", prompt=100)
    assert begun(world, ConserveV2(model)) == ["p0", "p1"]


def test_other_policies_fill_the_step(world: World, model: PolynomialModel) -> None:
    for i in range(3):
        world.online(f"p{i}", prompt=100)
    assert begun(world, OnlineOnly(model)) == ["p0", "p1", "p2"]


def test_where_steps_alternate_a_joined_prompt_saves_the_decode_step_too(
    world: World, model: PolynomialModel
) -> None:
    world.slo = Slo(ttft_s=0.4, tbt_s=0.05)  # no time to cut prompts
    world.limit(can_mix=False)
    world.online("chat", phase=Phase.DECODE)
    world.online("p0", prompt=100)
    world.online("p1", prompt=20)  # 20 ms against 10 + 11
    assert begun(world, ConserveV2(model)) == ["p0", "p1"]
    world.roster.finish("p1")
    world.online("p1", prompt=22)
    assert begun(world, ConserveV2(model)) == ["p0"]
