from __future__ import annotations

from typing import TYPE_CHECKING

from engine_adapter.scheduling.driver import Driver
from engine_adapter.scheduling.latency import PolynomialModel
from engine_adapter.scheduling.plan import Chunk, SafepointMode, StepPlan
from engine_adapter.scheduling.policies.conserve_v1 import ConserveV1
from engine_adapter.scheduling.policies.settings import PolicySettings
from engine_adapter.scheduling.request import Phase

if TYPE_CHECKING:
    from tests.unit.engine_adapter.conftest import World

LEAN = PolicySettings(typical_online_tokens=16, growth_tokens=0)


def plan_of(world: World, model: PolynomialModel) -> StepPlan:
    return Driver(ConserveV1(model, LEAN)).begin(world.snapshot()).plan


def test_the_tbt_target_bounds_a_step_with_online_decode(
    world: World, model: PolynomialModel
) -> None:
    world.online("on", phase=Phase.DECODE)
    world.offline("new", prompt=500)
    plan = plan_of(world, model)
    assert plan.budget_s == 0.050
    assert plan.prefill == (Chunk("new", 32),)


def test_the_ttft_target_bounds_a_step_with_online_prompts_only(
    world: World, model: PolynomialModel
) -> None:
    """1 s holds 990 tokens: the online prompt and what the chunk leaves for an offline one."""
    world.online("on", prompt=300)
    world.offline("new", prompt=500)
    plan = plan_of(world, model)
    assert plan.budget_s == 1.0
    assert plan.prefill == (Chunk("on", 300), Chunk("new", 208))


def test_online_prompts_beside_decode_are_always_cut(world: World, model: PolynomialModel) -> None:
    world.online("on1", phase=Phase.DECODE)
    world.online("on2", prompt=100)
    world.now_s = 0.99
    assert plan_of(world, model).prefill == (Chunk("on2", 32),)


def test_only_pure_offline_steps_are_armed(world: World, model: PolynomialModel) -> None:
    world.offline("new", prompt=500)
    assert plan_of(world, model).safepoints.mode is SafepointMode.ABORT
    world.online("on", phase=Phase.DECODE)
    assert plan_of(world, model).safepoints.mode is SafepointMode.NONE


def test_what_cannot_be_aborted_is_not_armed(world: World, model: PolynomialModel) -> None:
    world.limit(decode_safepoints=False, max_chunk_tokens=64)
    world.offline("d", phase=Phase.DECODE)
    assert plan_of(world, model).safepoints.mode is SafepointMode.NONE
