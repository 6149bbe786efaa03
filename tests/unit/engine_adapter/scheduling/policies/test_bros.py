"""BROS's rules, one by one, on the engine in memory."""

from __future__ import annotations

from dataclasses import replace

from engine_adapter.scheduling.driver import Driver
from engine_adapter.scheduling.latency import Coefficients, PolynomialModel
from engine_adapter.scheduling.plan import StepPlan
from engine_adapter.scheduling.policies.bros import FIRST_BATCH, Bros
from engine_adapter.scheduling.request import Request, RequestClass
from engine_adapter.scheduling.targets import Slo
from lab.simulator.engine import MemoryEngine
from lab.simulator.run import run
from lab.simulator.shape import EngineShape
from lab.simulator.times import ProfiledTimes

ONLINE, OFFLINE = RequestClass.ONLINE, RequestClass.OFFLINE
K = Coefficients(1e-4, 0.0, 0.0, 0.0, 1e-4, 2e-2)
MODEL = PolynomialModel(K, K, K)
SLO = Slo(0.4, 0.2)


def world(pages: int = 20_000) -> tuple[MemoryEngine, Bros, Driver]:
    policy = Bros(MODEL)
    driver = Driver(policy)
    shape = EngineShape(total_pages=pages, page_tokens=1, total_slots=64, host_total_pages=4000)
    return MemoryEngine(shape, SLO, ProfiledTimes(MODEL), driver.arrival), policy, driver


def add(
    engine: MemoryEngine, rid: str, cls: RequestClass, prompt: int, answer: int, at_s: float = 0.0
) -> None:
    engine.submit(Request(rid, cls, prompt, prompt, answer, at_s))


def steps(engine: MemoryEngine, driver: Driver, number: int) -> list[StepPlan]:
    plans = []
    for _ in range(number):
        plans.append(driver.begin(engine.snapshot()).plan)
        engine.apply(plans[-1])
        for outcome in engine.outcomes():
            driver.end(outcome.step_id, outcome)
    return plans


def ids(plan: StepPlan) -> list[str]:
    return [*plan.decode, *(chunk.rid for chunk in plan.prefill)]


def test_the_batch_grows_by_one_and_falls_back() -> None:
    engine, policy, driver = world()
    for i in range(60):
        add(engine, f"b{i}", OFFLINE, 10, 200)
    sizes = [len(ids(plan)) for plan in steps(engine, driver, 12)]
    assert sizes == list(range(FIRST_BATCH, FIRST_BATCH + 12))
    engine.now_s += 0.35  # 50 ms are left to the next ones: two of them fit
    for i in range(3):
        add(engine, f"r{i}", ONLINE, 150, 50, engine.now_s - 0.35)
    steps(engine, driver, 1)
    assert policy.batch == FIRST_BATCH


def test_the_most_urgent_comes_first() -> None:
    engine, policy, driver = world()
    for i in range(20):
        add(engine, f"r{i}", ONLINE, 20, 100)
    steps(engine, driver, 3)
    add(engine, "late", ONLINE, 20, 10, engine.now_s - 0.3)
    (plan,) = steps(engine, driver, 1)
    snapshot = engine.snapshot()
    urgent = min(snapshot.online_running, key=lambda request: policy.residual_s(request, snapshot))
    assert "late" in ids(plan)
    assert policy.residual_s(urgent, snapshot) < SLO.tbt_s


def test_best_effort_ones_replace_those_that_can_wait() -> None:
    engine, _, driver = world()
    for i in range(3):
        add(engine, f"b{i}", OFFLINE, 10, 300)
    steps(engine, driver, 2)
    for i in range(30):
        add(engine, f"r{i}", ONLINE, 10, 300, engine.now_s)
    plans = steps(engine, driver, 12)
    full = [ids(plan) for plan in plans[2:]]
    assert sum(any(rid.startswith("b") for rid in step) for step in full) > len(full) // 2
    assert all(sum(rid.startswith("r") for rid in step) >= 1 for step in full)


def test_best_effort_ones_are_copied_when_their_memory_is_wanted_and_not_before() -> None:
    engine, _, driver = world(600)
    for i in range(4):
        add(engine, f"b{i}", OFFLINE, 120, 60)
    plans = steps(engine, driver, 6)
    assert not any(plan.checkpoints for plan in plans)
    for i in range(4):
        add(engine, f"r{i}", ONLINE, 120, 20, engine.now_s)
    run(engine, driver, until_s=60.0)
    assert engine.restored_tokens > 0
    assert len(engine.finished) == 8


def test_missed_targets_stop_nobody_for_ever() -> None:
    engine, _, driver = world()
    for i in range(60):
        add(engine, f"r{i}", ONLINE, 900, 20)
    add(engine, "b", OFFLINE, 50, 5)
    run(engine, driver, until_s=120.0)
    assert len(engine.finished) == 61


def test_a_best_effort_request_gives_up_its_end_and_keeps_its_beginning() -> None:
    """Where an engine cannot take an end alone, the whole request gives way."""
    counted = {}
    for cuts in (True, False):
        engine, _, driver = world(600)
        engine.shape = replace(engine.shape, limits=replace(engine.shape.limits, cuts=cuts))
        for i in range(4):
            add(engine, f"b{i}", OFFLINE, 120, 60)
        steps(engine, driver, 6)
        for i in range(4):
            add(engine, f"r{i}", ONLINE, 100, 20, engine.now_s)
        run(engine, driver, until_s=60.0)
        assert len(engine.finished) == 8
        assert engine.pool.free_pages == engine.pool.total_pages
        assert engine.pool.host_free_pages == engine.pool.host_total_pages
        assert all(not engine.tracks[f"r{i}"].retractions for i in range(4))
        counted[cuts] = (engine.num_cuts, engine.num_retracts, engine.restored_tokens)
    assert counted[True][0] > 0
    assert counted[False][0] == 0
    assert counted[True][1] < counted[False][1]
    assert counted[True][2] < counted[False][2]
