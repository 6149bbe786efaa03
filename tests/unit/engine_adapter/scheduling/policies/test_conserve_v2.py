"""The default policy in small worlds: a step takes 10 ms plus 1 ms per token."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from engine_adapter.scheduling.driver import Driver
from engine_adapter.scheduling.latency import Coefficients, PolynomialModel
from engine_adapter.scheduling.plan import (
    Chunk,
    FinishedStep,
    Outcome,
    StepKind,
    StepPlan,
)
from engine_adapter.scheduling.policies.conserve_v2 import ConserveV2
from engine_adapter.scheduling.policies.settings import PolicySettings
from engine_adapter.scheduling.request import Phase
from engine_adapter.scheduling.targets import Slo

if TYPE_CHECKING:
    from tests.unit.engine_adapter.conftest import World

DECODE, PREFILL = Phase.DECODE, Phase.PREFILL
# What the pages kept back for growth and the next online prompt amount to is tested in parts.
LEAN = PolicySettings(typical_online_tokens=16, growth_tokens=0)


def plan_of(world: World, model: PolynomialModel, settings: PolicySettings = LEAN) -> StepPlan:
    return Driver(ConserveV2(model, settings)).begin(world.snapshot()).plan


class TestBesideOnline:
    """TBT target 50 ms: 40 tokens per step."""

    def test_online_decode_then_offline_decode_then_prompt_tokens(
        self, world: World, model: PolynomialModel
    ) -> None:
        world.offline("off1", phase=DECODE)
        world.online("on1", phase=DECODE)
        world.offline("off2", phase=DECODE)
        world.offline("new", prompt=500)
        plan = plan_of(world, model)
        assert plan.decode == ("on1", "off1", "off2")
        # 40 - 3 tokens are left; a chunk that does not finish the prompt ends on a page
        assert plan.prefill == (Chunk("new", 32),)
        assert plan.predicted_s == pytest.approx(0.045)
        assert plan.budget_s == 0.050

    def test_a_first_token_that_is_due_is_not_kept_waiting(
        self, world: World, model: PolynomialModel
    ) -> None:
        """50 ms are left of half its target, of which its prompt takes 42: 8 tokens are free."""
        world.slo = Slo(ttft_s=1.0, tbt_s=0.4)
        world.now_s = 10.0
        world.online("on", prompt=32, arrival_at_s=9.55)
        for i in range(12):
            world.offline(f"off{i}", phase=DECODE)
        plan = plan_of(world, model)
        assert plan.prefill == (Chunk("on", 32),)
        assert len(plan.decode) == 8
        assert plan.budget_s == pytest.approx(0.05)
        world.now_s = 11.0  # late already: later still for nothing
        assert plan_of(world, model).decode == ()

    def test_requests_that_do_not_fit_are_parked_with_their_kv(
        self, world: World, model: PolynomialModel
    ) -> None:
        world.slo = Slo(ttft_s=1.0, tbt_s=0.0131)  # three tokens
        world.online("on", phase=DECODE)
        for i in range(5):
            world.offline(f"off{i}", phase=DECODE)
        plan = plan_of(world, model)
        assert plan.decode == ("on", "off0", "off1")
        assert plan.parks == ("off2", "off3", "off4")
        assert plan.retracts == ()

    def test_online_decode_requests_run_even_beyond_the_target(
        self, world: World, model: PolynomialModel
    ) -> None:
        world.slo = Slo(ttft_s=1.0, tbt_s=0.001)
        world.online("on1", phase=DECODE)
        world.online("on2", phase=DECODE)
        world.offline("off", phase=DECODE)
        plan = plan_of(world, model)
        assert plan.decode == ("on1", "on2")
        assert plan.parks == ("off",)

    def test_several_prompts_are_half_filled_at_once(
        self, world: World, model: PolynomialModel
    ) -> None:
        world.online("on", phase=DECODE)
        world.offline("half1", phase=PREFILL, prompt=200, computed=176)
        world.offline("half2", phase=PREFILL, prompt=200, computed=32)
        plan = plan_of(world, model)
        # 39 tokens: the first needs 24, the second gets the rest, cut to pages... 15 is none
        assert plan.prefill == (Chunk("half1", 24),)
        world.roster.requests["half1"].computed_tokens = 180
        plan = plan_of(world, model)
        assert plan.prefill == (Chunk("half1", 20), Chunk("half2", 16))

    def test_the_overhead_between_steps_is_taken_off(
        self, world: World, model: PolynomialModel
    ) -> None:
        world.online("on", phase=DECODE)
        world.offline("new", prompt=500)
        snapshot = replace(world.snapshot(), overhead_s=0.020)
        plan = ConserveV2(model, LEAN).plan(snapshot)
        assert plan.prefill == (Chunk("new", 16),)  # 19 ms fit, cut to a page

    def test_an_expensive_mix_is_avoided(self, world: World) -> None:
        """Mixing costs 35 ms more: offline decodes fill the step instead of prompt tokens."""
        plain = Coefficients(0.001, 0, 0, 0, 0, 0.010)
        model = PolynomialModel(plain, plain, Coefficients(0.001, 0, 0, 0, 0, 0.045))
        world.online("on", phase=DECODE)
        for i in range(6):
            world.offline(f"off{i}", phase=DECODE)
        world.offline("new", prompt=500)
        plan = plan_of(world, model)
        assert len(plan.decode) == 7
        assert plan.prefill == ()

    def test_prompts_are_finished_before_others_are_begun(
        self, world: World, model: PolynomialModel
    ) -> None:
        """Half-filled prompts hold pages and save nobody's time; four of them are enough."""
        world.slo = Slo(ttft_s=1.0, tbt_s=0.200)
        world.online("on", phase=DECODE)
        for i in range(3):
            world.offline(f"half{i}", phase=PREFILL, prompt=48, computed=32)
        world.offline("new", prompt=100)
        chunks = [chunk.rid for chunk in plan_of(world, model).prefill]
        assert chunks == ["half0", "half1", "half2", "new"]
        world.offline("half3", phase=PREFILL, prompt=48, computed=32)
        chunks = [chunk.rid for chunk in plan_of(world, model).prefill]
        assert chunks == ["half0", "half1", "half2", "half3"]

    def test_drift_narrows_the_step(self, world: World, model: PolynomialModel) -> None:
        policy = ConserveV2(model, LEAN)
        slow = StepPlan(1, decode=("a",), prefill=(Chunk("b", 9),), predicted_s=0.02)
        for _ in range(30):
            policy.observe(FinishedStep(slow, Outcome(1, measured_s=0.024)))
        world.online("on", phase=DECODE)
        world.offline("new", prompt=500)
        # 50 ms / 1.2 (the level) / 1.4 (the margin) leave 29 tokens beside the decode request: a
        # page
        assert policy.plan(world.snapshot()).prefill == (Chunk("new", 16),)


class TestOnlinePrompts:
    def test_alone_they_run_whole(self, world: World, model: PolynomialModel) -> None:
        world.online("on", prompt=300)
        world.offline("off", phase=DECODE)
        plan = plan_of(world, model)
        assert plan.prefill == (Chunk("on", 300),)
        assert plan.parks == ("off",)

    def test_beside_decode_requests_they_are_cut_to_the_tbt_target(
        self, world: World, model: PolynomialModel
    ) -> None:
        """100 tokens in 3 steps of 50 ms end well before the TTFT target of 1 s."""
        world.online("on1", phase=DECODE)
        world.online("on2", prompt=100)
        assert plan_of(world, model).prefill == (Chunk("on2", 32),)

    def test_a_late_one_is_cut_too(self, world: World, model: PolynomialModel) -> None:
        """100 tokens need 4 steps of 50 ms, and only 150 ms are left of a second."""
        world.online("on1", phase=DECODE)
        world.now_s = 1.25
        world.online("on2", prompt=100).arrival_at_s = 0.4
        assert plan_of(world, model).prefill == (Chunk("on2", 32),)

    def test_one_of_which_no_token_fits_the_cap_runs_whole(
        self, world: World, model: PolynomialModel
    ) -> None:
        world.slo = Slo(1.0, 0.012)
        world.online("on1", phase=DECODE)
        world.online("on2", prompt=100)
        assert plan_of(world, model).prefill == (Chunk("on2", 100),)

    def test_they_alternate_with_decode_where_steps_cannot_mix(
        self, world: World, model: PolynomialModel
    ) -> None:
        world.limit(can_mix=False)
        world.online("on1", phase=DECODE)
        world.online("on2", prompt=1000)
        driver = Driver(ConserveV2(model, LEAN))
        kinds = [driver.begin(world.snapshot()).plan.kind for _ in range(4)]
        assert kinds == [StepKind.PREFILL, StepKind.DECODE, StepKind.PREFILL, StepKind.DECODE]

    def test_they_take_turns_where_mixing_costs_more_than_two_steps(self, world: World) -> None:
        plain = Coefficients(0.001, 0, 0, 0, 0, 0.010)
        model = PolynomialModel(plain, plain, Coefficients(0.001, 0, 0, 0, 0, 0.030))
        world.online("on1", phase=DECODE)
        world.online("on2", prompt=30)
        driver = Driver(ConserveV2(model, LEAN))
        kinds = [driver.begin(world.snapshot()).plan.kind for _ in range(3)]
        assert kinds == [StepKind.PREFILL, StepKind.DECODE, StepKind.PREFILL]

    def test_turns_share_one_gap(self, world: World) -> None:
        """Prompt and decode steps make one gap of 50 ms: offline requests get what both leave."""
        plain = Coefficients(0.001, 0, 0, 0, 0, 0.010)
        model = PolynomialModel(plain, plain, Coefficients(0.001, 0, 0, 0, 0, 0.030))
        world.have(page_tokens=1, free_pages=9000, total_pages=9000, total_slots=40)
        world.online("on1", phase=DECODE)
        world.online("on2", prompt=16)
        for i in range(20):
            world.offline(f"off{i}", phase=DECODE)
        driver = Driver(ConserveV2(model, LEAN))
        prompts = driver.begin(world.snapshot()).plan
        decode = driver.begin(world.snapshot()).plan
        assert (prompts.decode, prompts.prefill) == ((), (Chunk("on2", 16),))
        assert decode.decode[0] == "on1"
        # 50 - 26 ms of the prompts - 10 ms leave 14 requests, the online one among them
        assert len(decode.decode) == 14
        assert prompts.predicted_s + decode.predicted_s == pytest.approx(0.050)

    def test_a_request_that_cannot_mix_gets_its_own_step(
        self, world: World, model: PolynomialModel
    ) -> None:
        world.online("on1", phase=DECODE, can_mix=False)
        world.online("on2", prompt=100)
        driver = Driver(ConserveV2(model, LEAN))
        first = driver.begin(world.snapshot()).plan
        second = driver.begin(world.snapshot()).plan
        # 50 ms less the decode step that follows leave 29 tokens, cut to a page
        assert (first.decode, first.prefill) == ((), (Chunk("on2", 16),))
        assert (second.decode, second.prefill) == (("on1",), ())
