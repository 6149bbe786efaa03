"""The default policy without online requests; a step takes 10 ms plus 1 ms per token."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from engine_adapter.scheduling.driver import Driver
from engine_adapter.scheduling.latency import Coefficients, PolynomialModel
from engine_adapter.scheduling.plan import (
    Chunk,
    SafepointMode,
    Safepoints,
    StepKind,
    StepPlan,
)
from engine_adapter.scheduling.policies.conserve_v2 import ConserveV2
from engine_adapter.scheduling.policies.settings import PolicySettings
from engine_adapter.scheduling.request import Phase, RequestClass
from engine_adapter.scheduling.targets import Slo

if TYPE_CHECKING:
    from tests.unit.engine_adapter.conftest import World

DECODE, PREFILL = Phase.DECODE, Phase.PREFILL
# What the pages kept back for growth and the next online prompt amount to is tested in parts.
LEAN = PolicySettings(typical_online_tokens=16, growth_tokens=0)


def plan_of(world: World, model: PolynomialModel, settings: PolicySettings = LEAN) -> StepPlan:
    return Driver(ConserveV2(model, settings)).begin(world.snapshot()).plan


class TestOfflineAlone:
    def test_steps_are_filled_for_throughput(self, world: World, model: PolynomialModel) -> None:
        """Armed, a step may take two TTFT targets: the chunk is the only bound."""
        world.offline("d", phase=DECODE)
        world.offline("new", prompt=2000)
        plan = plan_of(world, model)
        assert plan.prefill == (Chunk("new", 512),)
        assert plan.decode == ("d",)
        assert plan.safepoints == Safepoints(SafepointMode.ABORT, 0.004)

    def test_unarmed_steps_leave_room_for_an_online_prompt(
        self, world: World, model: PolynomialModel
    ) -> None:
        """TTFT 1 s, a typical prompt of 590 tokens takes 600 ms: 400 ms are left."""
        world.limit(prefill_safepoints=False, decode_safepoints=False)
        world.offline("new", prompt=2000)
        settings = PolicySettings(typical_online_tokens=590, growth_tokens=0)
        plan = plan_of(world, model, settings)
        assert plan.prefill == (Chunk("new", 384),)
        assert plan.safepoints.mode is SafepointMode.NONE

    def test_what_is_typical_is_learnt_from_arrivals(
        self, world: World, model: PolynomialModel
    ) -> None:
        world.limit(prefill_safepoints=False)
        policy = ConserveV2(model, PolicySettings(typical_online_tokens=10, growth_tokens=0))
        world.online("seen", prompt=790)
        policy.plan(world.snapshot())
        world.roster.finish("seen")
        world.offline("new", prompt=2000)
        assert policy.plan(world.snapshot()).prefill == (Chunk("new", 176),)  # 200 ms

    def test_prompts_go_first_where_mixing_does_not_pay(self, world: World) -> None:
        plain = Coefficients(0.001, 0, 0, 0, 0, 0.010)
        model = PolynomialModel(plain, plain, Coefficients(0.001, 0, 0, 0, 0, 0.500))
        world.offline("d", phase=DECODE)
        world.offline("new", prompt=300)
        plan = plan_of(world, model)
        assert (plan.kind, plan.parks) == (StepKind.PREFILL, ("d",))

    def test_one_decode_request_always_runs(self, world: World) -> None:
        slow = Coefficients(0, 0, 0, 0, 0, 5.0)
        model = PolynomialModel(slow, slow, slow)
        world.limit(decode_safepoints=False)
        world.offline("d", phase=DECODE)
        assert plan_of(world, model).decode == ("d",)

    @pytest.mark.parametrize("stoppable", [True, False])
    def test_prompts_are_begun_and_go_on_where_no_token_fits_the_targets(
        self, world: World, model: PolynomialModel, stoppable: bool
    ) -> None:
        """A step takes 10 ms at least; one host page of tokens is the least that is progress."""
        world.slo = Slo(ttft_s=0.001, tbt_s=0.001)
        world.limit(prefill_safepoints=stoppable, decode_safepoints=stoppable)
        request = world.offline("new", prompt=100)
        world.offline("next", prompt=100)
        assert plan_of(world, model).prefill == (Chunk("new", 16),)
        world.roster.start("new")
        request.computed_tokens, request.device_pages = 16, 1
        assert plan_of(world, model).prefill == (Chunk("new", 16),)
        world.offline("d", phase=DECODE)
        plan = plan_of(world, model)
        assert (plan.decode, plan.prefill) == (("d",), ())

    def test_targets_out_of_reach_begin_no_offline_prompt_beside_an_online_request(
        self, world: World, model: PolynomialModel
    ) -> None:
        world.slo = Slo(ttft_s=0.001, tbt_s=0.001)
        world.online("chat", phase=DECODE)
        world.offline("new", prompt=100)
        plan = plan_of(world, model)
        assert (plan.decode, plan.prefill) == (("chat",), ())

    def test_a_request_is_admitted_only_with_pages_for_its_whole_prompt(
        self, world: World, model: PolynomialModel
    ) -> None:
        world.have(free_pages=20)
        world.offline("running", phase=DECODE)
        world.offline("long", prompt=310)  # 20 pages, and one is kept back
        assert plan_of(world, model).prefill == ()

    def test_out_of_pages_the_last_request_makes_room_for_the_first(
        self, world: World, model: PolynomialModel
    ) -> None:
        world.have(free_pages=0)
        world.offline("first", phase=DECODE, prompt=96)  # its next token needs a page
        world.offline("last", phase=DECODE, prompt=96)
        plan = plan_of(world, model)
        assert plan.decode == ("first",)
        assert plan.retracts == ("last",)

    def test_flex_comes_before_offline(self, world: World, model: PolynomialModel) -> None:
        world.offline("off", prompt=300, deadline_at_s=1.0)
        world.add("flex", RequestClass.FLEX, prompt=300, deadline_at_s=9.0)
        assert [chunk.rid for chunk in plan_of(world, model).prefill] == ["flex", "off"]

    def test_flex_takes_no_more_than_its_share_while_offline_waits(
        self, world: World, model: PolynomialModel
    ) -> None:
        world.have(total_slots=6, reserved_slots=2)  # 4 for offline work, 2 of them for flex
        for i in range(4):
            world.add(f"flex{i}", RequestClass.FLEX, prompt=16)
        world.offline("off", prompt=16)
        admitted = [chunk.rid for chunk in plan_of(world, model).prefill]
        assert admitted == ["flex0", "flex1", "off", "flex2"]
