"""SGLang's own priority scheduling, decision by decision."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from engine_adapter.scheduling.driver import Driver
from engine_adapter.scheduling.latency import PolynomialModel
from engine_adapter.scheduling.plan import Chunk, SafepointMode
from engine_adapter.scheduling.policies.registry import create_policy
from engine_adapter.scheduling.request import Phase
from lab.policies.sglang_priority import FIRST_RATIO, SglangPriority

if TYPE_CHECKING:
    from engine_adapter.scheduling.plan import StepPlan
    from tests.unit.engine_adapter.conftest import World

DECODE, PREFILL = Phase.DECODE, Phase.PREFILL
STOCK = ("sglang_priority", "sglang_no_preemption")


def plan_of(name: str, world: World, model: PolynomialModel) -> StepPlan:
    return Driver(create_policy(name, model)).begin(world.snapshot()).plan


@pytest.fixture(autouse=True)
def page_of_one(world: World) -> None:
    """SGLang's usual page, all slots open to everyone, results taken back."""
    world.have(page_tokens=1, total_pages=20_000, free_pages=10_000, reserved_slots=0)
    world.limit(retracts_in_flight=True)


@pytest.mark.parametrize("name", STOCK)
def test_prompts_share_the_chunk_with_those_that_decode(
    name: str, world: World, model: PolynomialModel
) -> None:
    world.offline("d", phase=DECODE, max_output_tokens=50)
    world.online("on", phase=DECODE, max_output_tokens=50)
    world.offline("w", prompt=900, max_output_tokens=50)
    plan = plan_of(name, world, model)
    assert (plan.decode, plan.prefill) == (("on", "d"), (Chunk("w", 510),))
    assert plan.safepoints.mode is SafepointMode.NONE


@pytest.mark.parametrize("name", STOCK)
def test_without_mixing_prompts_go_first(name: str, world: World, model: PolynomialModel) -> None:
    world.limit(can_mix=False)
    world.online("on", phase=DECODE, max_output_tokens=50)
    world.offline("w", prompt=2000, max_output_tokens=50)
    driver = Driver(create_policy(name, model))
    for _ in range(3):  # nobody takes turns
        plan = driver.begin(world.snapshot()).plan
        assert (plan.decode, plan.prefill) == ((), (Chunk("w", 512),))


def test_the_prompt_that_was_cut_is_first_then_class_then_arrival(
    world: World, model: PolynomialModel
) -> None:
    world.offline("cut", prompt=300, phase=PREFILL, computed=200, max_output_tokens=9)
    world.offline("old", prompt=100, max_output_tokens=9)
    world.online("early", prompt=100, max_output_tokens=9)
    world.online("late", prompt=100, max_output_tokens=9)
    plan = plan_of("sglang_priority", world, model)
    order = [chunk.rid for chunk in plan.prefill]
    assert order == ["cut", "early", "late", "old"]


def test_without_a_slot_the_newest_offline_request_gives_way(
    world: World, model: PolynomialModel
) -> None:
    world.have(total_slots=3)
    world.offline("old", phase=DECODE, max_output_tokens=50, in_flight=True)
    world.offline("new", phase=DECODE, max_output_tokens=50, in_flight=True)
    world.online("on", phase=DECODE, max_output_tokens=50, in_flight=True)
    world.online("arrives", max_output_tokens=50)
    plan = plan_of("sglang_priority", world, model)
    assert plan.retracts == ("new",)
    assert plan.decode == ("on", "old")
    assert plan.prefill == (Chunk("arrives", 100),)
    assert plan_of("sglang_no_preemption", world, model).retracts == ()


def test_equals_take_no_slot(world: World, model: PolynomialModel) -> None:
    world.have(total_slots=2)
    world.online("a", phase=DECODE, max_output_tokens=50)
    world.online("b", phase=DECODE, max_output_tokens=50)
    world.online("c", max_output_tokens=50)
    assert plan_of("sglang_priority", world, model).retracts == ()


def test_a_result_on_its_way_is_waited_for_where_the_engine_needs_it(
    world: World, model: PolynomialModel
) -> None:
    world.limit(retracts_in_flight=False)
    world.have(total_slots=1)
    request = world.offline("d", phase=DECODE, max_output_tokens=50, in_flight=True)
    world.online("on", max_output_tokens=50)
    driver = Driver(create_policy("sglang_priority", model))
    assert driver.begin(world.snapshot()).plan.is_empty
    request.in_flight = False
    plan = driver.begin(world.snapshot()).plan
    assert (plan.retracts, plan.prefill) == (("d",), (Chunk("on", 100),))


def test_memory_alone_makes_nobody_give_way(world: World, model: PolynomialModel) -> None:
    world.have(free_pages=120)
    world.offline("d", phase=DECODE, max_output_tokens=50)
    world.online("on", prompt=100, max_output_tokens=50)  # 150 with its longest answer
    plan = plan_of("sglang_priority", world, model)
    assert (plan.retracts, plan.prefill, plan.decode) == ((), (), ("d",))


def test_a_request_begins_beside_a_share_of_what_others_may_still_need(
    world: World, model: PolynomialModel
) -> None:
    world.offline("d", phase=DECODE, max_output_tokens=1000)
    world.online("on", prompt=100, max_output_tokens=99)
    expected = int(FIRST_RATIO * 1000) + 1  # and the token of the step itself
    world.have(free_pages=expected + 200)
    assert not plan_of("sglang_priority", world, model).prefill
    world.have(free_pages=expected + 201)
    assert plan_of("sglang_priority", world, model).prefill == (Chunk("on", 100),)


def test_the_ratio_falls_and_is_estimated_again_when_memory_runs_out(
    world: World, model: PolynomialModel
) -> None:
    policy = SglangPriority(model)
    driver = Driver(policy)
    world.online("on", phase=DECODE, output_tokens=4, max_output_tokens=100)
    world.offline("long", phase=DECODE, output_tokens=9, max_output_tokens=100)
    world.offline("short", phase=DECODE, output_tokens=2, max_output_tokens=100)
    driver.begin(world.snapshot())
    assert policy.ratio == pytest.approx(0.7 - 0.7 * 0.86 / 600)
    world.have(free_pages=2)
    plan = driver.begin(world.snapshot()).plan
    assert plan.retracts == ("short",)  # lowest class, fewest tokens
    assert plan.decode == ("on", "long")
    assert policy.ratio == pytest.approx((4 + 9 + 2 * 20) / 201)


def test_without_preemption_a_full_engine_admits_nobody_until_one_ends(
    world: World, model: PolynomialModel
) -> None:
    world.have(free_pages=100)
    driver = Driver(create_policy("sglang_no_preemption", model))
    world.offline("a", phase=DECODE, max_output_tokens=9)
    world.offline("b", phase=DECODE, max_output_tokens=9)
    world.online("on", prompt=100, max_output_tokens=50)
    assert not driver.begin(world.snapshot()).plan.prefill
    world.have(free_pages=1000)
    assert not driver.begin(world.snapshot()).plan.prefill
    world.roster.finish("a")
    assert driver.begin(world.snapshot()).plan.prefill == ()  # its batch has not been filtered yet
    assert driver.begin(world.snapshot()).plan.prefill == (Chunk("on", 100),)


def test_who_ended_holds_a_slot_until_the_next_step_that_decodes(
    world: World, model: PolynomialModel
) -> None:
    world.have(total_slots=3)
    driver = Driver(create_policy("sglang_priority", model))
    for rid in "abc":
        world.offline(rid, phase=DECODE, max_output_tokens=9)
    driver.begin(world.snapshot())
    world.roster.finish("a")
    world.online("on", prompt=100, max_output_tokens=50)
    plan = driver.begin(world.snapshot()).plan
    assert (plan.retracts, plan.prefill) == (("c",), (Chunk("on", 100),))


def test_who_gave_way_stands_behind_all_that_wait_and_is_the_newest_again(
    world: World, model: PolynomialModel
) -> None:
    world.have(total_slots=2)
    policy = SglangPriority(model)
    driver = Driver(policy)
    old = world.offline("old", phase=DECODE, max_output_tokens=9)
    new = world.offline("new", phase=DECODE, max_output_tokens=9)
    waits = world.offline("waits", max_output_tokens=9)
    world.online("on", prompt=100, max_output_tokens=50)
    assert driver.begin(world.snapshot()).plan.retracts == ("new",)
    assert sorted([new, waits, old], key=policy.rank) == [old, waits, new]


def test_no_latency_model_is_asked(world: World, model: PolynomialModel) -> None:
    from engine_adapter.scheduling.latency import Coefficients

    k = Coefficients(0.1, 0, 0, 0, 0, 1.0)
    world.online("on", phase=DECODE, max_output_tokens=50)
    world.offline("w", prompt=900, max_output_tokens=50)
    plans = [plan_of("sglang_priority", world, m) for m in (model, PolynomialModel(k, k, k))]
    assert plans[0].prefill == plans[1].prefill
    assert plans[0].decode == plans[1].decode
