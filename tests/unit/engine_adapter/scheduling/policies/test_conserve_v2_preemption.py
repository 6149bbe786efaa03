"""The default policy: memory, safepoints, arrivals; 10 ms plus 1 ms per token."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from engine_adapter.scheduling.driver import Driver
from engine_adapter.scheduling.latency import PolynomialModel
from engine_adapter.scheduling.plan import (
    Arrival,
    Chunk,
    Decision,
    FinishedStep,
    Outcome,
    RunningStep,
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


class TestReclaim:
    def test_a_checkpointed_request_goes_first_and_only_as_many_as_needed(
        self, world: World, model: PolynomialModel
    ) -> None:
        world.have(free_pages=0)
        world.offline("saved", phase=DECODE, host_pages=6, host_tokens=96)
        world.offline("unsaved", phase=DECODE)
        world.online("on", prompt=100)  # 7 pages, which one request has
        plan = plan_of(world, model)
        assert plan.retracts == ("saved",)
        assert plan.prefill == (Chunk("on", 100),)
        assert plan.parks == ("unsaved",)

    def test_the_latest_deadline_goes_first_among_equals(
        self, world: World, model: PolynomialModel
    ) -> None:
        world.have(free_pages=0)
        world.offline("late", phase=DECODE, deadline_at_s=200.0)
        world.offline("soon", phase=DECODE, deadline_at_s=100.0)
        world.online("on", prompt=100)
        assert plan_of(world, model).retracts == ("late",)

    def test_a_request_whose_step_is_not_processed_is_spared(
        self, world: World, model: PolynomialModel
    ) -> None:
        world.have(free_pages=0)
        world.offline("busy", phase=DECODE, in_flight=True)
        world.online("on", prompt=100)
        plan = plan_of(world, model)
        assert plan.retracts == ()
        assert plan.prefill == ()

    def test_nobody_is_retracted_in_vain(self, world: World, model: PolynomialModel) -> None:
        world.have(free_pages=0)
        world.offline("small", phase=DECODE, prompt=16)
        world.online("on", prompt=100)
        assert plan_of(world, model).retracts == ()

    def test_a_slot_is_reclaimed_like_a_page(self, world: World, model: PolynomialModel) -> None:
        world.have(total_slots=2, free_slots=0, reserved_slots=0)
        world.offline("a", phase=DECODE)
        world.offline("b", phase=DECODE)
        world.online("on", prompt=100)
        plan = plan_of(world, model)
        assert plan.retracts == ("b",)
        assert plan.prefill == (Chunk("on", 100),)

    def test_online_displaces_newer_online_when_no_offline_request_is_left(
        self, world: World, model: PolynomialModel
    ) -> None:
        world.have(free_pages=0)
        world.online("old", phase=DECODE, prompt=96)  # its next token needs a page
        world.online("new", phase=DECODE, prompt=90)
        plan = plan_of(world, model)
        assert plan.retracts == ("new",)
        assert plan.decode == ("old",)


class TestSafepoints:
    def test_mixed_steps_drop_their_offline_requests(
        self, world: World, model: PolynomialModel
    ) -> None:
        world.slo = Slo(ttft_s=0.2, tbt_s=0.050)
        world.online("on", phase=DECODE)
        world.offline("new", prompt=500)
        assert plan_of(world, model).safepoints == Safepoints(SafepointMode.DROP, 0.004)

    def test_so_do_decode_steps_where_that_can_be_undone(
        self, world: World, model: PolynomialModel
    ) -> None:
        world.slo = Slo(ttft_s=0.1, tbt_s=0.050)
        world.online("on", phase=DECODE)
        for i in range(11):
            world.offline(f"off{i}", phase=DECODE)
        assert plan_of(world, model).safepoints == Safepoints(SafepointMode.DROP, 0.004)
        world.limit(decode_safepoints=False)
        assert plan_of(world, model).safepoints.mode is SafepointMode.NONE

    def test_a_short_offline_part_is_not_worth_a_stop(
        self, world: World, model: PolynomialModel
    ) -> None:
        world.slo = Slo(ttft_s=0.1, tbt_s=0.050)
        world.online("on", phase=DECODE)
        for i in range(9):
            world.offline(f"off{i}", phase=DECODE)  # 9 of 20 ms
        assert plan_of(world, model).safepoints.mode is SafepointMode.NONE

    def test_a_distance_that_is_set_is_what_a_stop_has_to_save_too(
        self, world: World, model: PolynomialModel
    ) -> None:
        world.online("on", phase=DECODE)
        for i in range(9):
            world.offline(f"off{i}", phase=DECODE)
        close = PolicySettings(safepoint_interval_s=0.001)
        assert plan_of(world, model, close).safepoints == Safepoints(SafepointMode.DROP, 0.001)

    @pytest.mark.parametrize(
        "settings",
        [PolicySettings(safepoints=False), PolicySettings(drop_mixed=False)],
    )
    def test_unless_switched_off(
        self, world: World, model: PolynomialModel, settings: PolicySettings
    ) -> None:
        world.slo = Slo(ttft_s=0.2, tbt_s=0.050)
        world.online("on", phase=DECODE)
        world.offline("new", prompt=500)
        assert plan_of(world, model, settings).safepoints.mode is SafepointMode.NONE

    def test_purely_online_steps_pay_nothing(self, world: World, model: PolynomialModel) -> None:
        world.online("on", prompt=500)
        assert plan_of(world, model).safepoints.mode is SafepointMode.NONE


class TestAtArrival:
    """TTFT target 1 s; a prompt of 190 tokens takes 200 ms."""

    @staticmethod
    def decide(  # noqa: PLR0913
        model: PolynomialModel,
        *,
        at_s: float,
        predicted_s: float = 1.2,
        prompt: int = 190,
        request_class: RequestClass = RequestClass.ONLINE,
        mode: SafepointMode = SafepointMode.ABORT,
        offline_requests: int = 3,
        queued: int = 0,
        earlier: int = 0,
        share: float = 1.0,
    ) -> Decision:
        step = RunningStep(
            step_id=1,
            kind=StepKind.PREFILL,
            started_at_s=100.0,
            predicted_s=predicted_s,
            num_offline_requests=offline_requests,
            num_online_requests=0,
            safepoints=Safepoints(mode, 0.1),
            queued_online_tokens=queued,
            slo=Slo(ttft_s=1.0, tbt_s=0.05),
        )
        arrival = Arrival(request_class, prompt, 100.0 + at_s, earlier)
        policy = ConserveV2(model, PolicySettings(ttft_planning_share=share))
        return policy.at_arrival(arrival, step)

    def test_a_step_that_leaves_time_goes_on(self, model: PolynomialModel) -> None:
        assert self.decide(model, at_s=0.5) is Decision.CONTINUE  # 0.7 s + 0.2 s

    def test_one_that_does_not_is_stopped(self, model: PolynomialModel) -> None:
        assert self.decide(model, at_s=0.3) is Decision.STOP_AT_NEXT_SAFEPOINT  # 0.9 s + 0.2 s

    def test_first_tokens_planned_early_stop_more(self, model: PolynomialModel) -> None:
        decision = self.decide(model, at_s=0.5, share=0.8)
        assert decision is Decision.STOP_AT_NEXT_SAFEPOINT

    def test_prompts_that_queue_already_count(self, model: PolynomialModel) -> None:
        assert self.decide(model, at_s=0.5, queued=200) is Decision.STOP_AT_NEXT_SAFEPOINT
        assert self.decide(model, at_s=0.5, earlier=200) is Decision.STOP_AT_NEXT_SAFEPOINT

    def test_only_online_arrivals_stop_anything(self, model: PolynomialModel) -> None:
        for request_class in (RequestClass.FLEX, RequestClass.OFFLINE):
            decision = self.decide(model, at_s=0.1, request_class=request_class)
            assert decision is Decision.CONTINUE

    def test_only_armed_steps_with_offline_requests_are_stopped(
        self, model: PolynomialModel
    ) -> None:
        assert self.decide(model, at_s=0.1, mode=SafepointMode.NONE) is Decision.CONTINUE
        assert self.decide(model, at_s=0.1, offline_requests=0) is Decision.CONTINUE

    def test_a_step_about_to_end_is_left_alone(self, model: PolynomialModel) -> None:
        assert self.decide(model, at_s=1.15, prompt=2000) is Decision.CONTINUE

    def test_a_step_that_is_late_is_expected_to_be_so_late_again(
        self, model: PolynomialModel
    ) -> None:
        assert self.decide(model, at_s=1.25, prompt=2000) is Decision.STOP_AT_NEXT_SAFEPOINT
        assert self.decide(model, at_s=1.25) is Decision.CONTINUE  # 50 ms and 0.2 s
        assert self.decide(model, at_s=2.1) is Decision.STOP_AT_NEXT_SAFEPOINT  # 0.9 s and 0.2 s

    def test_a_machine_slower_than_its_profile_stops_earlier(self, model: PolynomialModel) -> None:
        settings = PolicySettings(ttft_planning_share=1.0)
        policy = ConserveV2(model, settings)
        slow = StepPlan(1, prefill=(Chunk("b", 9),), predicted_s=0.1)
        for _ in range(30):
            policy.observe(FinishedStep(slow, Outcome(1, measured_s=0.125)))
        step = RunningStep(
            1, StepKind.PREFILL, 100.0, 1.2, 3, 0, Safepoints(SafepointMode.ABORT, 0.1), 0,
            Slo(ttft_s=1.0, tbt_s=0.05),
        )  # fmt: skip
        arrival = Arrival(RequestClass.ONLINE, 190, at_s=100.5)
        # 1.5 s instead of 1.2, and 0.25 s instead of 0.2
        assert policy.at_arrival(arrival, step) is Decision.STOP_AT_NEXT_SAFEPOINT
        assert ConserveV2(model, settings).at_arrival(arrival, step) is Decision.CONTINUE
