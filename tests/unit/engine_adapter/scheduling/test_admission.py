"""Who is passed over and who holds up the others; a step takes 10 ms plus 1 ms per token."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from engine_adapter.scheduling.driver import Driver
from engine_adapter.scheduling.latency import Coefficients, PolynomialModel
from engine_adapter.scheduling.plan import Chunk, StepPlan
from engine_adapter.scheduling.policies.conserve_v1 import ConserveV1
from engine_adapter.scheduling.policies.conserve_v2 import ConserveV2
from engine_adapter.scheduling.policies.settings import PolicySettings
from engine_adapter.scheduling.queue import STALLED_STEPS
from engine_adapter.scheduling.request import Phase, RequestClass
from engine_adapter.scheduling.targets import Slo

if TYPE_CHECKING:
    from tests.unit.engine_adapter.conftest import World

DECODE, PREFILL = Phase.DECODE, Phase.PREFILL
LEAN = PolicySettings(typical_online_tokens=16, growth_tokens=0)


@pytest.fixture
def driver(model: PolynomialModel) -> Driver:
    return Driver(ConserveV2(model, LEAN))


def plan_of(driver: Driver, world: World) -> StepPlan:
    return driver.begin(world.snapshot()).plan


class TestStepAlternation:
    """TBT target 50 ms, a decode 11 ms: a turn of its own has 39 ms, so 16 tokens of 10 + n."""

    def world_of(self, world: World) -> World:
        world.now_s = 100.0
        world.online("chat", phase=DECODE)
        world.offline("logprobs", prompt=64, can_mix=False)
        return world

    def test_a_prompt_that_was_passed_over_has_the_next_step(
        self, world: World, driver: Driver
    ) -> None:
        self.world_of(world).offline("plain", prompt=16)
        first, second = plan_of(driver, world), plan_of(driver, world)
        assert (first.decode, first.prefill) == (("chat",), (Chunk("plain", 16),))
        assert (second.decode, second.prefill) == ((), (Chunk("logprobs", 16),))
        assert second.parks == ("chat",)

    def test_the_step_after_it_is_for_the_requests_left_out(
        self, world: World, driver: Driver
    ) -> None:
        self.world_of(world)
        plans = [plan_of(driver, world) for _ in range(4)]
        assert [plan.decode for plan in plans] == [("chat",), (), ("chat",), ()]
        # 26 ms of the gap are the turn's
        assert plans[2].budget_s == pytest.approx(plans[0].budget_s - 0.026)

    def test_an_online_prompt_has_the_step_instead(self, world: World, driver: Driver) -> None:
        self.world_of(world)
        plan_of(driver, world)
        world.online("new", prompt=16)
        plan = plan_of(driver, world)
        assert (plan.decode, plan.prefill) == (("chat",), (Chunk("new", 16),))

    def test_the_last_slot_is_kept_for_it(self, world: World, driver: Driver) -> None:
        self.world_of(world).offline("plain", prompt=16)
        world.have(total_slots=4, reserved_slots=2)
        world.offline("other", phase=DECODE)
        assert plan_of(driver, world).prefill == ()
        assert plan_of(driver, world).prefill == (Chunk("logprobs", 16),)

    def test_but_not_where_its_turn_has_no_room(self, world: World, driver: Driver) -> None:
        self.world_of(world).offline("plain", prompt=1)
        world.slo = Slo(ttft_s=1.0, tbt_s=0.020)
        world.have(total_slots=4, reserved_slots=2)
        world.offline("other", phase=DECODE)
        plans = [plan_of(driver, world) for _ in range(3)]
        assert plans[0].prefill == ()
        assert plans[1].prefill == plans[2].prefill == (Chunk("plain", 1),)

    def test_pages_for_the_tokens_after_it_are_left_to_online_requests(
        self, world: World, model: PolynomialModel
    ) -> None:
        world.now_s = 100.0
        world.online("chat", phase=DECODE, prompt=160)
        world.offline("logprobs", phase=PREFILL, prompt=64, computed=32, can_mix=False)
        world.have(free_pages=1)
        driver = Driver(ConserveV1(model, LEAN))
        assert [plan_of(driver, world).decode for _ in range(3)] == [("chat",)] * 3
        world.have(free_pages=2)
        assert plan_of(driver, world).prefill == (Chunk("logprobs", 16),)


class TestRequestsPassedOver:
    def test_a_request_behind_a_prefix_too_long_for_the_step(self, world: World) -> None:
        """0.1 ms for each cached token: behind 1,000 of them no token fits into 50 ms."""
        plain = Coefficients(0.001, 0.0, 1e-4, 0.0, 0.0, 0.010)
        model = PolynomialModel(Coefficients(0.001, 0.0, 0.0, 0.0, 0.0, 0.010), plain, plain)
        world.online("chat", phase=DECODE, prompt=1)
        for i in range(3):
            world.offline(f"behind{i}", prompt=1100, cached_tokens=1000)
        world.offline("new", prompt=16)
        driver = Driver(ConserveV2(model))
        assert plan_of(driver, world).prefill == (Chunk("new", 16),)

    def test_a_request_that_waits_for_others_to_end_holds_up_those_behind(
        self, world: World, driver: Driver
    ) -> None:
        world.have(free_pages=60)
        world.online("chat", phase=DECODE)
        world.offline("decodes", phase=DECODE, prompt=800)
        world.offline("long", prompt=1600)
        world.offline("short", prompt=16)
        assert plan_of(driver, world).prefill == ()

    def test_but_not_once_nothing_offline_moves(self, world: World, driver: Driver) -> None:
        """Half-filled prompts whose next page takes longer than the target holds what it needs."""
        world.slo = Slo(ttft_s=1.0, tbt_s=0.025)
        world.have(free_pages=260)
        world.online("chat", phase=DECODE)
        for i in range(4):
            world.offline(f"half{i}", phase=PREFILL, prompt=320, computed=160)
        world.offline("short", prompt=4)
        plans = [plan_of(driver, world) for _ in range(STALLED_STEPS + 1)]
        assert {plan.prefill for plan in plans[:-1]} == {()}
        assert plans[-1].prefill == (Chunk("short", 4),)

    def test_flex_requests_are_passed_over_too(self, world: World, driver: Driver) -> None:
        world.online("chat", phase=DECODE)
        world.add("flex", RequestClass.FLEX, prompt=64, can_mix=False)
        world.offline("plain", prompt=16)
        assert plan_of(driver, world).prefill == (Chunk("plain", 16),)
