"""Loads under which offline requests once waited for ever, on the engine in memory.

Each has a request or a kind of request that cannot go on, and asks what becomes of the others, and
of it.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import pytest

from engine_adapter.scheduling.driver import Driver
from engine_adapter.scheduling.latency import Coefficients, PolynomialModel
from engine_adapter.scheduling.policies.registry import create_policy
from engine_adapter.scheduling.policies.settings import PolicySettings
from engine_adapter.scheduling.request import Request, RequestClass
from engine_adapter.scheduling.snapshot import EngineLimits
from engine_adapter.scheduling.targets import Slo
from lab.simulator.engine import MemoryEngine
from lab.simulator.run import run
from lab.simulator.shape import EngineShape
from lab.simulator.times import ProfiledTimes

ONLINE, FLEX, OFFLINE = RequestClass.ONLINE, RequestClass.FLEX, RequestClass.OFFLINE
CONSERVE = pytest.mark.parametrize("policy", ["conserve_v1", "conserve_v2"])
# A step takes 20 ms, 50 us a prompt token and 40 us a decode request: a small GPU.
PROMPT = Coefficients(5e-5, 0.0, 0.0, 0.0, 4e-5, 2e-2)
MODEL = PolynomialModel(Coefficients(0.0, 0.0, 0.0, 0.0, 4e-5, 2e-2), PROMPT, PROMPT)
LIMITS = EngineLimits(prefill_safepoints=True, decode_safepoints=True, request_drop=True)


@dataclass
class Load:
    """Requests for one run; online requests overlap, so they never leave."""

    seconds: float = 20.0
    num_pages: int = 20_000
    slo: Slo = field(default_factory=lambda: Slo(1.0, 0.1))
    limits: EngineLimits = LIMITS
    settings: PolicySettings = field(default_factory=PolicySettings)
    model: PolynomialModel = MODEL
    requests: list[Request] = field(default_factory=list)

    def add(
        self, name: str, number: int, cls: RequestClass, prompt: int, output: int, **more: object
    ) -> Load:
        for i in range(number):
            request = Request(f"{name}{i}", cls, prompt, prompt, max_output_tokens=output)
            for key, value in {"batch_id": name, "arrival_at_s": 0.3, **more}.items():
                setattr(request, key, value)
            self.requests.append(request)
        return self

    def online(self, prompt: int = 50, output: int = 50, **more: object) -> Load:
        for i in range(int(2 * self.seconds) + 10):
            self.add(f"online-{i}-", 1, ONLINE, prompt, output, arrival_at_s=i / 2, **more)
        return self

    def run(self, policy: str) -> MemoryEngine:
        shape = EngineShape(
            total_pages=self.num_pages, page_tokens=1, delay_steps=1, limits=self.limits
        )
        driver = Driver(create_policy(policy, self.model, self.settings))
        engine = MemoryEngine(shape, self.slo, ProfiledTimes(self.model), driver.arrival)
        for request in self.requests:
            engine.submit(request)
        run(engine, driver, until_s=self.seconds)
        return engine


def num_done(engine: MemoryEngine, name: str) -> int:
    return sum(rid.startswith(name) for rid in engine.finished)


class TestRequestsThatCannotShareAStep:
    @CONSERVE
    def test_those_behind_them_are_served(self, policy: str) -> None:
        without = Load().online().add("plain", 900, OFFLINE, 200, 50).run(policy)
        load = Load().online().add("logprobs", 20, OFFLINE, 500, 50, can_mix=False, deadline_at_s=9)
        engine = load.add("plain", 900, OFFLINE, 200, 50).run(policy)
        assert engine.offline_tokens > 0.8 * without.offline_tokens > 0

    @CONSERVE
    def test_they_are_served_in_turn(self, policy: str) -> None:
        load = Load().online()
        load.add("logprobs", 20, OFFLINE, 500, 50, can_mix=False, deadline_at_s=9)
        engine = load.add("plain", 900, OFFLINE, 200, 50).run(policy)
        assert num_done(engine, "logprobs") == 20
        assert num_done(engine, "plain") > 150

    @CONSERVE
    def test_online_gaps_stay_inside_their_target(self, policy: str) -> None:
        load = Load().online()
        engine = load.add("logprobs", 200, OFFLINE, 500, 50, can_mix=False).run(policy)
        times = [ts for rid, ts in engine.token_times.items() if rid.startswith("online")]
        gaps = [b - a for ts in times for a, b in itertools.pairwise(ts)]
        assert num_done(engine, "logprobs") > 50
        assert sum(gap > load.slo.tbt_s for gap in gaps) < 0.05 * len(gaps)

    @CONSERVE
    def test_prompts_have_turns_beside_online_requests_that_cannot_share(self, policy: str) -> None:
        load = Load().online(can_mix=False)
        engine = load.add("plain", 900, OFFLINE, 200, 50).run(policy)
        assert num_done(engine, "plain") > 120  # 85 beside the prompts of online requests alone

    @CONSERVE
    def test_prompts_have_turns_where_the_executor_cannot_mix(self, policy: str) -> None:
        limits = EngineLimits(prefill_safepoints=True, decode_safepoints=True, can_mix=False)
        load = Load(limits=limits).online()
        assert num_done(load.add("plain", 900, OFFLINE, 200, 50).run(policy), "plain") > 120

    @CONSERVE
    def test_without_online_requests_decode_requests_have_turns_too(self, policy: str) -> None:
        """Requests that end with their prompt give their slot back: there are always more."""
        load = Load().add("flex", 4, FLEX, 50, 50).add("early", 1, OFFLINE, 50, 50, deadline_at_s=9)
        engine = load.add("scores", 2000, OFFLINE, 200, 1, can_mix=False).run(policy)
        assert num_done(engine, "flex") == 4
        assert num_done(engine, "early") == 1
        assert num_done(engine, "scores") > 500

    @CONSERVE
    def test_nor_do_they_wait_where_sharing_does_not_pay(self, policy: str) -> None:
        dear = PolynomialModel(MODEL.decode, PROMPT, Coefficients(5e-5, 0.0, 0.0, 0.0, 4e-5, 0.2))
        load = Load(model=dear).add("flex", 4, FLEX, 50, 50)
        assert num_done(load.add("scores", 2000, OFFLINE, 200, 1).run(policy), "flex") == 4


class TestRequestsThatDoNotFit:
    @CONSERVE
    @pytest.mark.parametrize("num_tokens", [18_500, 19_500])
    def test_a_request_beyond_what_online_requests_leave_stops_nobody(
        self, policy: str, num_tokens: int
    ) -> None:
        load = Load().online(1000).add("long", 300, OFFLINE, num_tokens, 50, deadline_at_s=9)
        assert num_done(load.add("plain", 1000, OFFLINE, 200, 50).run(policy), "plain") > 150

    @CONSERVE
    def test_a_request_that_fits_once_others_end_is_waited_for(self, policy: str) -> None:
        load = Load(seconds=40.0).online().add("plain", 1500, OFFLINE, 200, 50)
        load.add("long", 1, OFFLINE, 16_000, 50, deadline_at_s=9, arrival_at_s=5.0)
        assert num_done(load.run(policy), "long") == 1

    @CONSERVE
    def test_the_share_of_a_later_batch_stops_no_earlier_one(self, policy: str) -> None:
        settings = PolicySettings(batch_min_share=0.1)
        load = Load(settings=settings).online(1000)
        load.add("plain", 1000, OFFLINE, 200, 50, deadline_at_s=3600.0)
        load.add("long", 1, OFFLINE, 19_500, 50, deadline_at_s=86400.0)
        assert num_done(load.run(policy), "plain") > 150

    def test_a_half_filled_prompt_goes_on_with_the_pages_kept_for_it(self) -> None:
        load = Load(seconds=30.0, num_pages=3950).online(200, 50)
        load.add("long", 3, OFFLINE, 3400, 20, batch_id="one")
        assert num_done(load.run("conserve_v2"), "long") == 3
