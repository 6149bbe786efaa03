"""What each baseline of the papers does that the others do not, on the engine in memory."""

from __future__ import annotations

import itertools

import pytest

from engine_adapter.scheduling.driver import Driver
from engine_adapter.scheduling.latency import Coefficients, PolynomialModel
from engine_adapter.scheduling.plan import StepPlan
from engine_adapter.scheduling.policies.registry import create_policy
from engine_adapter.scheduling.request import Request, RequestClass
from engine_adapter.scheduling.targets import Slo
from lab.simulator.engine import MemoryEngine
from lab.simulator.run import run
from lab.simulator.shape import EngineShape
from lab.simulator.times import ProfiledTimes

ONLINE, OFFLINE = RequestClass.ONLINE, RequestClass.OFFLINE
K = Coefficients(5e-5, 0.0, 0.0, 0.0, 4e-5, 2e-2)
MODEL = PolynomialModel(K, K, K)
SLO = Slo(1.0, 0.1)


def engine_for(name: str, pages: int = 2000, **shape: object) -> tuple[MemoryEngine, Driver]:
    driver = Driver(create_policy(name, MODEL))
    made = EngineShape(total_pages=pages, page_tokens=1, total_slots=64, **shape)  # type: ignore[arg-type]
    return MemoryEngine(made, SLO, ProfiledTimes(MODEL), driver.arrival), driver


def add(
    engine: MemoryEngine, rid: str, prompt: int, answer: int, at_s: float = 0.0, **more: object
) -> None:
    request = Request(rid, ONLINE, prompt, prompt, 1000, arrival_at_s=at_s, **more)  # type: ignore[arg-type]
    engine.submit(request, answer_tokens=answer)


def steps(engine: MemoryEngine, driver: Driver, number: int) -> list[StepPlan]:
    plans = []
    for _ in range(number):
        plans.append(driver.begin(engine.snapshot()).plan)
        engine.apply(plans[-1])
        engine.outcomes()
    return plans


def running(engine: MemoryEngine) -> int:
    return engine.roster.num_running


class TestWhoBegins:
    def test_orca_keeps_room_for_the_longest_answer(self) -> None:
        for name, expected in (("orca", 1), ("vllm", 10), ("fastgen", 10)):
            engine, driver = engine_for(name)
            for i in range(10):
                add(engine, f"r{i}", 100, 20)  # at most 1,100 tokens each
            steps(engine, driver, 6)
            assert running(engine) == expected, name

    def test_multires_keeps_room_for_the_expected_answer(self) -> None:
        engine, driver = engine_for("multires")
        for i in range(10):
            add(engine, f"r{i}", 100, 20, expected_output_tokens=300)
        steps(engine, driver, 6)
        assert running(engine) == 5

    def test_multires_takes_what_fills_step_and_memory(self) -> None:
        engine, driver = engine_for("multires")
        add(engine, "short", 50, 20, expected_output_tokens=10)
        add(engine, "filling", 400, 20, expected_output_tokens=1000)
        (plan,) = steps(engine, driver, 1)
        assert plan.prefill[0].rid == "filling"


class TestSteps:
    def test_vllm_neither_mixes_nor_cuts(self) -> None:
        engine, driver = engine_for("vllm")
        for i in range(6):
            add(engine, f"r{i}", 200, 20, at_s=0.03 * i)
        for plan in steps(engine, driver, 20):
            assert not (plan.decode and plan.prefill)
            assert all(chunk.num_tokens == 200 for chunk in plan.prefill)

    def test_fastgen_fills_every_step_to_the_same_number(self) -> None:
        engine, driver = engine_for("fastgen", 20_000)
        for i in range(30):
            add(engine, f"r{i}", 300, 20)
        assert {plan.num_tokens for plan in steps(engine, driver, 10)} == {512}

    def test_round_robin_alternates(self) -> None:
        engine, driver = engine_for("round_robin")
        for i in range(8):
            request = Request(f"b{i}", OFFLINE, 50, 50, 100)
            engine.submit(request)
            add(engine, f"r{i}", 50, 100)
        sides = []
        for plan in steps(engine, driver, 12):
            rids = {*plan.decode, *(chunk.rid for chunk in plan.prefill)}
            sides.append({rid[0] for rid in rids})
        assert sides == [{"r"}, {"b"}] * 6


class TestWhoGivesWay:
    @pytest.mark.parametrize("name", ["vllm", "fastgen"])
    def test_the_last_is_computed_again(self, name: str) -> None:
        engine, driver = engine_for(name, 400)
        for i in range(4):
            add(engine, f"r{i}", 90, 60)
        run(engine, driver, until_s=100.0)
        assert engine.tracks["r3"].retractions
        assert not engine.tracks["r0"].retractions
        assert engine.recomputed_tokens > 0
        assert engine.restored_tokens == 0

    def test_swapped_it_comes_back_from_the_host(self) -> None:
        engine, driver = engine_for("vllm_swap", 400)
        for i in range(4):
            add(engine, f"r{i}", 90, 60)
        run(engine, driver, until_s=100.0)
        assert engine.tracks["r3"].retractions
        assert engine.restored_tokens > 90
        assert engine.recomputed_tokens < 20  # at most the page that was not full

    def test_fastserve_lets_a_short_one_overtake(self) -> None:
        ends = {}
        for name in ("fastgen", "fastserve"):
            engine, driver = engine_for(name, 700)
            for i in range(3):
                add(engine, f"long{i}", 200, 100)
            add(engine, "short", 20, 3, at_s=1.0)
            run(engine, driver, until_s=100.0)
            ends[name] = engine.token_times["short"][-1]
        assert ends["fastserve"] < ends["fastgen"]


def test_xllm_keeps_the_pace_and_stops_nothing() -> None:
    engine, driver = engine_for("xllm", 50_000)
    for i in range(40):
        engine.submit(Request(f"b{i}", OFFLINE, 900, 900, 300))
    for i in range(5):
        add(engine, f"r{i}", 100, 60, at_s=2.0 + i)
    run(engine, driver, until_s=30.0)
    for i in range(5):
        times = engine.token_times[f"r{i}"]
        gaps = [b - a for a, b in itertools.pairwise(times)]
        assert sorted(gaps)[int(0.9 * len(gaps))] < 1.1 * SLO.tbt_s
    assert engine.num_stops == 0
    assert engine.offline_tokens > 0
