"""EcoServe's rules and what each of its steps adds, on the engine in memory."""

from __future__ import annotations

import pytest

from engine_adapter.scheduling.driver import Driver
from engine_adapter.scheduling.latency import Coefficients, PolynomialModel
from engine_adapter.scheduling.plan import StepPlan
from engine_adapter.scheduling.policies.ecoserve import (
    EcoServe,
    EcoServeD,
    EcoServeSd,
    EcoServeSdo,
)
from engine_adapter.scheduling.request import Request, RequestClass
from engine_adapter.scheduling.targets import Slo
from lab.simulator.engine import MemoryEngine
from lab.simulator.run import run
from lab.simulator.shape import EngineShape
from lab.simulator.times import ProfiledTimes

K = Coefficients(5e-5, 0.0, 0.0, 0.0, 4e-5, 2e-2)
MODEL = PolynomialModel(K, K, K)
EVERY = pytest.mark.parametrize("make", [EcoServeD, EcoServeSd, EcoServeSdo, EcoServe])


def world(
    make: type[EcoServeD], pages: int = 2000, reserve: float = 0.03
) -> tuple[MemoryEngine, Driver]:
    policy = make(MODEL)
    policy.reserve = reserve
    driver = Driver(policy)
    shape = EngineShape(total_pages=pages, page_tokens=1, total_slots=64, host_total_pages=4000)
    return MemoryEngine(shape, Slo(1.0, 0.1), ProfiledTimes(MODEL), driver.arrival), driver


def add(engine: MemoryEngine, rid: str, prompt: int, answer: int, expected: int = 0) -> None:
    request = Request(rid, RequestClass.ONLINE, prompt, prompt, 1000, engine.now_s)
    request.expected_output_tokens = expected or answer
    engine.submit(request, answer_tokens=answer)


def steps(engine: MemoryEngine, driver: Driver, number: int) -> list[StepPlan]:
    plans = []
    for _ in range(number):
        plans.append(driver.begin(engine.snapshot()).plan)
        engine.apply(plans[-1])
        engine.outcomes()
    return plans


@EVERY
def test_with_true_expectations_nobody_ever_gives_way(make: type[EcoServeD]) -> None:
    engine, driver = world(make)
    for i in range(60):
        add(engine, f"r{i}", 40 + i, 30 + 7 * (i % 20))
    run(engine, driver, until_s=500.0)
    assert len(engine.finished) == 60
    if make is not EcoServe:  # a guest that is late gives way
        assert engine.num_retracts == 0


@EVERY
def test_too_short_expectations_end_too(make: type[EcoServeD]) -> None:
    engine, driver = world(make)
    for i in range(30):
        add(engine, f"r{i}", 60, 200, expected=20)
    run(engine, driver, until_s=500.0)
    assert len(engine.finished) == 30


def test_an_answer_waits_until_all_of_it_has_memory() -> None:
    engine, driver = world(EcoServeD, 1300, 0.2)
    for i in range(8):
        add(engine, f"r{i}", 50, 200)  # 256 tokens with padding, in blocks
    plans = steps(engine, driver, 12)
    assert {len(plan.decode) for plan in plans[2:]} == {2}


@pytest.mark.parametrize(
    ("make", "pages", "together"),
    [(EcoServeD, 1300, False), (EcoServeSd, 1300, True), (EcoServeSd, 4000, False)],
)
def test_groups_of_one_length_end_together_once_memory_is_full(
    make: type[EcoServeD], pages: int, *, together: bool
) -> None:
    """What is left when the first six have begun holds three more: synced ones wait for their end.

    With memory for all, nobody waits: nothing would be gained.
    """
    engine, driver = world(make, pages, 0.2)
    for i in range(6):
        add(engine, f"a{i}", 50, 60 + 2 * i)  # all of them 96 with padding, in blocks
    steps(engine, driver, 4)
    for i in range(6):
        add(engine, f"b{i}", 50, 60)
    seen = [set(plan.decode) for plan in steps(engine, driver, 80)]
    mixed = [step for step in seen if {rid[0] for rid in step} == {"a", "b"}]
    assert (not mixed) is together


def test_prompts_do_not_wait_for_the_reserve_while_memory_is_free() -> None:
    """Before, prompts beyond the reserve waited for a group to end although most was free."""
    engine, driver = world(EcoServe, 2000, 0.03)
    for i in range(8):
        add(engine, f"r{i}", 50, 100)
    plans = steps(engine, driver, 4)
    assert len(plans[-1].decode) == 8


def test_what_a_guest_leaves_is_lent_again() -> None:
    engine, driver = world(EcoServe, 1000, 0.12)
    add(engine, "host", 50, 600)
    for i in range(12):
        add(engine, f"guest{i}", 20, 40)
    seen: set[str] = set()
    for plan in steps(engine, driver, 250):
        seen.update(plan.decode)
    assert "host" not in engine.finished
    assert len(seen) > 8


def test_the_longest_comes_first_and_the_gap_is_filled() -> None:
    engine, driver = world(EcoServeSdo, 1200, 0.15)
    for name, answer in (("short", 40), ("long", 500), ("middle", 200)):
        add(engine, name, 50, answer)
    plans = steps(engine, driver, 4)
    assert {"long", "middle", "short"} >= set(plans[-1].decode) >= {"long"}


def test_the_second_half_is_lent() -> None:
    """The pool has room for one long answer; short ones run in what it does not use yet."""
    shown = {}
    for make in (EcoServeSdo, EcoServe):
        engine, driver = world(make, 1000, 0.12)
        add(engine, "host", 50, 600)
        for i in range(4):
            add(engine, f"guest{i}", 20, 60)
        shown[make] = max(len(plan.decode) for plan in steps(engine, driver, 8))
        run(engine, driver, until_s=200.0)
        assert len(engine.finished) == 5
    assert shown[EcoServeSdo] == 1
    assert shown[EcoServe] > 1
