"""How long a step may take for online requests, and which of their tokens it takes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest

from engine_adapter.scheduling.builder import PlanBuilder
from engine_adapter.scheduling.driver import Driver
from engine_adapter.scheduling.harvest import offline_only_budget_s
from engine_adapter.scheduling.latency import PolynomialModel
from engine_adapter.scheduling.memory import VictimPool
from engine_adapter.scheduling.online import (
    MAX_PROMPTS_WAITING,
    OnlineArrivals,
    OnlineFiller,
    by_response_ratio,
    first_token_slack_s,
    next_token_slack_s,
)
from engine_adapter.scheduling.policies.conserve_v2 import ConserveV2
from engine_adapter.scheduling.policies.online_only import OnlineOnly
from engine_adapter.scheduling.queue import RequestsByPhase
from engine_adapter.scheduling.request import Phase
from engine_adapter.scheduling.targets import Slo

if TYPE_CHECKING:
    from tests.unit.engine_adapter.conftest import World


def test_the_typical_prompt_is_a_mean_of_what_arrived(world: World) -> None:
    arrivals = OnlineArrivals(256)
    assert arrivals.prompt_tokens == 256
    world.online("a", prompt=100)
    arrivals.update(world.snapshot())
    arrivals.update(world.snapshot())  # seen already
    assert arrivals.prompt_tokens == 100
    world.online("b", prompt=200)
    arrivals.update(world.snapshot())
    assert arrivals.prompt_tokens == 150


class TestOfflineOnlyBudget:
    """A step takes 10 ms plus 1 ms per token."""

    @staticmethod
    def budget_s(
        world: World,
        model: PolynomialModel,
        *,
        stoppable: bool = True,
        prompt_tokens: int = 90,
    ) -> float:
        world.slo = Slo(ttft_s=1.0, tbt_s=0.05)
        return offline_only_budget_s(
            world.snapshot(),
            model,
            stoppable=stoppable,
            longest_s=2.0,
            prompt_tokens=prompt_tokens,
        )

    @pytest.mark.parametrize(("prompt_tokens", "expected_s"), [(90, 0.9), (2000, 0.05)])
    def test_a_step_that_cannot_be_stopped_leaves_room_for_a_prompt(
        self, world: World, model: PolynomialModel, prompt_tokens: int, expected_s: float
    ) -> None:
        budget_s = self.budget_s(world, model, stoppable=False, prompt_tokens=prompt_tokens)
        assert budget_s == pytest.approx(expected_s)

    def test_a_step_that_can_be_stopped_may_last(
        self, world: World, model: PolynomialModel
    ) -> None:
        assert self.budget_s(world, model) == 2.0


class TestNextToken:
    """One decode request with 5 tokens delivered, the sixth is next; it is second 10."""

    def slack_s(
        self, world: World, model: PolynomialModel, first_at_s: float, tpot_s: float
    ) -> float:
        world.slo = Slo(ttft_s=1.0, tbt_s=0.2, tpot_s=tpot_s)
        world.now_s = 10.0
        request = world.online("a", phase=Phase.DECODE, first_token_at_s=first_at_s)
        request.computed_tokens += 4
        snapshot = world.snapshot()
        return next_token_slack_s(PlanBuilder(snapshot, model), snapshot.online_ready)

    def test_without_a_pace_the_gap_cap_is_the_deadline(
        self, world: World, model: PolynomialModel
    ) -> None:
        assert self.slack_s(world, model, 9.0, math.inf) == 0.2

    def test_tokens_that_came_early_bank_time(self, world: World, model: PolynomialModel) -> None:
        assert self.slack_s(world, model, 9.65, 0.1) == pytest.approx(0.15)

    def test_the_gap_cap_bounds_what_is_spent_at_once(
        self, world: World, model: PolynomialModel
    ) -> None:
        assert self.slack_s(world, model, 9.99, 0.1) == pytest.approx(0.2)

    def test_who_is_late_falls_no_further_behind(
        self, world: World, model: PolynomialModel
    ) -> None:
        assert self.slack_s(world, model, 5.0, 0.1) == pytest.approx(0.1)


def test_each_target_has_a_quantile_of_its_own(world: World, model: PolynomialModel) -> None:
    """Gaps may be planned up to the target, first tokens up to half of what is left."""
    world.slo = Slo(ttft_s=1.0, tbt_s=0.2, tpot_s=0.1)
    world.now_s = 10.0
    world.online("decodes", phase=Phase.DECODE, first_token_at_s=9.95).computed_tokens += 1
    world.online("waits", prompt=64, arrival_at_s=9.4)
    snapshot = world.snapshot()
    builder = PlanBuilder(snapshot, model, 1.0, first_quantile=2.0, pace_quantile=1.25)
    # The third token is due in 150 ms.
    slack_s = next_token_slack_s(builder, snapshot.online_ready)
    assert builder.bounded_s(slack_s) == pytest.approx(0.15 / 1.25)
    waiting = RequestsByPhase.of(snapshot).online_filling(fetches=True)
    # 400 ms are left, less the prompt's own 74 ms in the step after this one.
    assert builder.bounded_s(first_token_slack_s(builder, waiting)) == pytest.approx(0.326 / 2)
    # Planned for 800 ms of the second, 200 ms fewer.
    assert first_token_slack_s(builder, waiting, 0.8) == pytest.approx(0.126 / 2)


class TestResponseRatio:
    """A step takes 10 ms plus 1 ms per token; it is second 10."""

    @staticmethod
    def order(world: World, model: PolynomialModel) -> list[str]:
        world.now_s = 10.0
        builder = PlanBuilder(world.snapshot(), model)
        filling = RequestsByPhase.of(builder.snapshot).online_filling(fetches=True)
        return [request.rid for request in by_response_ratio(builder, filling)]

    def test_a_short_prompt_passes_a_long_one(self, world: World, model: PolynomialModel) -> None:
        world.online("long", prompt=990, arrival_at_s=9.0)  # has waited as long as it takes
        world.online("short", prompt=10, arrival_at_s=9.97)  # one and a half times as long
        assert self.order(world, model) == ["short", "long"]

    def test_a_long_prompt_is_passed_only_by_longer_waits(
        self, world: World, model: PolynomialModel
    ) -> None:
        world.online("long", prompt=990, arrival_at_s=7.0)  # three times as long as it takes
        for i in range(5):
            world.online(f"short-{i}", prompt=10, arrival_at_s=9.95)  # two and a half times
        assert self.order(world, model)[0] == "long"

    def test_equal_prompts_stay_in_the_order_of_arrival(
        self, world: World, model: PolynomialModel
    ) -> None:
        for i in range(4):
            world.online(f"{i}", prompt=64, arrival_at_s=9.0 + i / 10)
        assert self.order(world, model) == ["0", "1", "2", "3"]

    def test_prompts_without_pages_stay_behind(self, world: World, model: PolynomialModel) -> None:
        world.have(free_pages=80)  # of 16 tokens
        world.online("long", prompt=990, arrival_at_s=9.0)
        world.online("too-long", prompt=990, arrival_at_s=9.0)
        world.online("short", prompt=10, arrival_at_s=9.9)
        assert self.order(world, model) == ["long", "too-long", "short"]

    def test_the_work_of_ordering_is_bounded(self, world: World, model: PolynomialModel) -> None:
        for i in range(MAX_PROMPTS_WAITING):
            world.online(f"{i}", prompt=990, arrival_at_s=9.0)
        world.online("behind", prompt=1, arrival_at_s=9.5)
        assert self.order(world, model)[-1] == "behind"


class TestPromptBesideDecoding:
    """A step takes 10 ms plus 1 ms per token; unfinished chunks end with a page of 16 tokens."""

    @staticmethod
    def taken(
        world: World,
        model: PolynomialModel,
        *,
        prompt: int,
        tbt_s: float,
        late_share: float,
        num_decoding: int = 2,
        **begun: object,
    ) -> int:
        world.slo = Slo(ttft_s=1.0, tbt_s=tbt_s)
        world.now_s = 10.0
        for number in range(num_decoding):
            world.online(f"{number}", phase=Phase.DECODE)
        world.online("prompt", prompt=prompt, arrival_at_s=10.0, **begun)
        snapshot = world.snapshot()
        builder = PlanBuilder(snapshot, model)
        requests = RequestsByPhase.of(snapshot)
        filler = OnlineFiller(cuts=True, late_share=late_share)
        filler.take(builder, requests, VictimPool(builder, requests.offline, requests.online))
        return builder.chunk_tokens_of(requests.online_filling(fetches=True)[0])

    def test_the_cap_alone(self, world: World, model: PolynomialModel) -> None:
        assert self.taken(world, model, prompt=400, tbt_s=0.029, late_share=math.inf) == 16

    def test_a_prompt_in_time_is_cut_to_the_cap(self, world: World, model: PolynomialModel) -> None:
        # Two steps of 29 ms, of 500 ms.
        assert self.taken(world, model, prompt=32, tbt_s=0.029, late_share=0.5) == 16

    @pytest.mark.parametrize(("prompt", "expected"), [(32, 4), (400, 20)])
    def test_a_late_prompt_gets_as_much_as_the_decoding_requests(
        self, world: World, model: PolynomialModel, prompt: int, expected: int
    ) -> None:
        # Ten chats decode in 20 ms: 4 tokens end with a page within 36 ms, and 20 within 40.
        num_tokens = self.taken(
            world,
            model,
            prompt=prompt,
            tbt_s=0.036,
            late_share=0.5,
            num_decoding=10,
            phase=Phase.PREFILL,
            computed=12,
        )
        assert num_tokens == expected

    def test_a_wide_cap_stays(self, world: World, model: PolynomialModel) -> None:
        assert self.taken(world, model, prompt=4000, tbt_s=0.1, late_share=0.5) == 80


class TestFirstTokenSlack:
    """A step takes 10 ms plus 1 ms per token; the TTFT target is a second, it is second 10."""

    def slack_s(self, world: World, model: PolynomialModel, *taken: tuple[str, int]) -> float:
        world.slo = Slo(ttft_s=1.0, tbt_s=0.05)
        world.now_s = 10.0
        builder = PlanBuilder(world.snapshot(), model)
        requests = RequestsByPhase.of(builder.snapshot).online_filling(fetches=True)
        for rid, num_tokens in taken:
            request = next(request for request in requests if request.rid == rid)
            builder.chunk_left = num_tokens
            assert builder.chunk(request, math.inf) == num_tokens
        return first_token_slack_s(builder, requests)

    def test_nobody_waits(self, world: World, model: PolynomialModel) -> None:
        world.online("on", phase=Phase.DECODE)
        assert self.slack_s(world, model) == math.inf

    def test_a_finished_prompt_has_its_token_at_the_end(
        self, world: World, model: PolynomialModel
    ) -> None:
        world.online("on", prompt=64, arrival_at_s=9.4)
        assert self.slack_s(world, model, ("on", 64)) == pytest.approx(0.4)

    def test_what_is_left_of_prompts_comes_after_the_step_oldest_first(
        self, world: World, model: PolynomialModel
    ) -> None:
        world.online("first", prompt=64, arrival_at_s=9.4)
        world.online("second", prompt=64, arrival_at_s=9.5)
        world.online("third", prompt=100, arrival_at_s=9.5)
        # 32 tokens of the first are left, then all of the second, then all of the third.
        assert self.slack_s(world, model, ("first", 32)) == pytest.approx(
            min(0.4 - 0.042, 0.5 - 0.106, 0.5 - 0.206)
        )

    def test_a_late_one_leaves_nothing(self, world: World, model: PolynomialModel) -> None:
        world.online("late", prompt=64, arrival_at_s=8.0)
        assert self.slack_s(world, model, ("late", 64)) == pytest.approx(-1.0)


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
    world.slo = Slo(ttft_s=0.4, tbt_s=0.2)
    world.limit(can_mix=False)
    world.online("chat", phase=Phase.DECODE)
    world.online("p0", prompt=100)
    world.online("p1", prompt=22)
    driver = Driver(ConserveV2(model))
    plan = driver.begin(world.snapshot()).plan
    assert (plan.decode, [c.rid for c in plan.prefill]) == ((), ["p0", "p1"])
    assert driver.begin(world.snapshot()).plan.decode == ("chat",)
