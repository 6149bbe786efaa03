"""Requests that give way while their result is under way, and requests that come back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from engine_adapter.scheduling.driver import Driver
from engine_adapter.scheduling.latency import PolynomialModel
from engine_adapter.scheduling.plan import (
    Chunk,
    Restore,
    StepPlan,
)
from engine_adapter.scheduling.policies.conserve_v2 import ConserveV2
from engine_adapter.scheduling.policies.registry import create_policy
from engine_adapter.scheduling.policies.settings import PolicySettings
from engine_adapter.scheduling.request import Phase

if TYPE_CHECKING:
    from tests.unit.engine_adapter.conftest import World

DECODE, PREFILL = Phase.DECODE, Phase.PREFILL
# What the pages kept back for growth and the next online prompt amount to is tested in parts.
LEAN = PolicySettings(typical_online_tokens=16, growth_tokens=0)


def plan_of(world: World, model: PolynomialModel, settings: PolicySettings = LEAN) -> StepPlan:
    return Driver(ConserveV2(model, settings)).begin(world.snapshot()).plan


class TestRequestsUnderWay:
    """In the overlap loop every running request has a result on its way: none can be retracted."""

    @pytest.mark.parametrize("name", ["sarathi_p", "conserve_v1", "conserve_v2"])
    def test_the_victim_rests_and_then_gives_its_pages_up(
        self, name: str, world: World, model: PolynomialModel
    ) -> None:
        world.have(free_pages=0)
        early = world.offline("early", phase=DECODE, prompt=160)
        late = world.offline("late", phase=DECODE, prompt=160)
        world.online("on", prompt=160)
        early.in_flight = late.in_flight = True
        driver = Driver(create_policy(name, model))
        plan = driver.begin(world.snapshot()).plan
        assert (plan.retracts, plan.prefill) == ((), ())
        assert "late" in plan.parks
        late.in_flight = False
        plan = driver.begin(world.snapshot()).plan
        assert plan.retracts == ("late",)
        assert [chunk.rid for chunk in plan.prefill][:1] == ["on"]

    def test_offline_requests_do_not_rest_for_each_other(
        self, world: World, model: PolynomialModel
    ) -> None:
        world.have(free_pages=0)
        first = world.offline("first", phase=DECODE, prompt=165)
        second = world.offline("second", phase=DECODE, prompt=160)
        first.in_flight = second.in_flight = True
        assert plan_of(world, model).decode == ("first",), "it has room in its last page"


class TestRestore:
    def test_retracted_requests_come_back_before_new_ones_start(
        self, world: World, model: PolynomialModel
    ) -> None:
        world.offline("new", prompt=100)
        world.offline("r", phase=Phase.RETRACTED, host_pages=6, host_tokens=90)
        world.have(copy_pages_per_step=4)
        plan = plan_of(world, model)
        assert plan.restores == (Restore("r", 0, 4),)
        assert plan.prefill == (Chunk("new", 100),)

    def test_a_fetch_goes_on_in_pieces(self, world: World, model: PolynomialModel) -> None:
        world.have(copy_pages_per_step=4)
        world.offline(
            "r",
            phase=Phase.RESTORING,
            computed=64,
            restored_pages=4,
            host_pages=6,
            host_tokens=90,
        )
        assert plan_of(world, model).restores == (Restore("r", 4, 2),)

    @pytest.mark.parametrize("name", ["conserve_v1", "conserve_v2"])
    def test_an_online_request_comes_back_at_the_cost_of_offline_requests(
        self, name: str, world: World, model: PolynomialModel
    ) -> None:
        world.have(free_pages=0)
        world.offline("big", phase=DECODE, prompt=800)
        world.online("on", phase=Phase.RETRACTED, prompt=160, host_pages=10, host_tokens=160)
        plan = Driver(create_policy(name, model)).begin(world.snapshot()).plan
        assert plan.retracts == ("big",)
        assert plan.restores == (Restore("on", 0, 10),)

    def test_new_requests_leave_the_pages_a_retracted_request_waits_for(
        self, world: World, model: PolynomialModel
    ) -> None:
        world.have(free_pages=10)
        world.offline("running", phase=DECODE)
        world.offline("r", phase=Phase.RETRACTED, prompt=160, host_pages=10, host_tokens=160)
        world.offline("new", prompt=16)
        plan = plan_of(world, model)
        assert plan.restores == ()
        assert plan.prefill == ()

    @pytest.mark.parametrize("copies", [4, 100])
    def test_pages_for_one_go_to_the_retracted_request_though_a_new_one_would_fit_too(
        self, copies: int, world: World, model: PolynomialModel
    ) -> None:
        """Work that was begun is finished first, or the host fills with requests that never end."""
        world.have(free_pages=14, copy_pages_per_step=copies)
        world.offline("running", phase=DECODE)
        world.offline("r", phase=Phase.RETRACTED, prompt=160, host_pages=10, host_tokens=160)
        world.offline("new", prompt=160)
        plan = plan_of(world, model)
        assert plan.restores == (Restore("r", 0, min(10, copies)),)
        assert plan.prefill == ()

    def test_nothing_is_fetched_in_a_step_that_had_to_retract(
        self, world: World, model: PolynomialModel
    ) -> None:
        world.have(free_pages=0)
        world.offline("big", phase=DECODE, prompt=800)
        world.offline("r", phase=Phase.RETRACTED, prompt=32, host_pages=2, host_tokens=32)
        world.online("on", prompt=100)
        plan = plan_of(world, model)
        assert plan.retracts == ("big",)
        assert plan.restores == ()
