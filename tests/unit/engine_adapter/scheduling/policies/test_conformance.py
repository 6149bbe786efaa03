"""What every policy keeps to, whatever it decides."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine_adapter.scheduling.driver import Driver
from engine_adapter.scheduling.latency import Coefficients, PolynomialModel
from engine_adapter.scheduling.plan import StepPlan
from engine_adapter.scheduling.policies.registry import create_policy
from engine_adapter.scheduling.request import Request, RequestClass, pages_for
from engine_adapter.scheduling.snapshot import EngineLimits
from engine_adapter.scheduling.targets import Slo
from lab.policies.registry import POLICIES, TEST_POLICIES, TWO_POOLS
from lab.simulator.engine import MemoryEngine
from lab.simulator.run import run
from lab.simulator.shape import EngineShape
from lab.simulator.times import ProfiledTimes

ALL = sorted(POLICIES) + sorted(TWO_POOLS) + sorted(TEST_POLICIES)
K = Coefficients(4e-4, 0.0, 1e-5, 1e-7, 1e-4, 0.05)
MODEL = PolynomialModel(Coefficients(4e-4, 0.0, 1e-5, 0.0, 0.0, 0.05), K, K)
SLO = Slo(ttft_s=0.4, tbt_s=0.09)
OUT_OF_REACH = Slo(ttft_s=1e-4, tbt_s=1e-4)  # no step is as short


def check_pool(engine: MemoryEngine) -> None:
    """Every page is accounted for, and no more slots are held than there are."""
    requests = list(engine.roster.requests.values())
    pool = engine.pool
    for request in requests:
        held = pages_for(request.computed_tokens, pool.page_tokens) if request.holds_slot else 0
        assert request.device_pages == held, request
    assert pool.free_pages == pool.total_pages - sum(request.device_pages for request in requests)
    on_host = sum(request.host_pages + request.host_pages_pending for request in requests)
    assert pool.host_free_pages == pool.host_total_pages - on_host
    assert engine.roster.num_running <= engine.shape.total_slots


def freeze(request: Request) -> tuple[object, ...]:
    return tuple(getattr(request, f.name) for f in fields(request))


shapes = st.builds(
    EngineShape,
    total_pages=st.integers(30, 120),
    page_tokens=st.just(16),
    host_total_pages=st.sampled_from([0, 5, 20, 400]),
    total_slots=st.integers(2, 8),
    reserved_share=st.sampled_from([0.0, 0.25]),
    copy_pages_per_step=st.sampled_from([0, 1, 2, 50]),
    delay_steps=st.sampled_from([0, 1]),
    limits=st.builds(
        EngineLimits,
        max_chunk_tokens=st.sampled_from([32, 128, 512]),
        can_mix=st.booleans(),
        prefill_safepoints=st.booleans(),
        decode_safepoints=st.booleans(),
        request_drop=st.booleans(),
        cuts=st.booleans(),
        num_layers=st.just(10),
    ),
)
requests = st.lists(
    st.tuples(
        st.sampled_from(list(RequestClass)),
        st.integers(1, 300),  # prompt
        st.integers(1, 40),  # output
        st.floats(0.0, 5.0),  # arrival
        st.sampled_from(["", "b1", "b2"]),
        st.floats(10.0, 1000.0),  # deadline
        st.booleans(),  # can mix
    ),
    min_size=1,
    max_size=40,
)


def build(
    shape: EngineShape, specs: list[tuple[object, ...]], driver: Driver, slo: Slo = SLO
) -> MemoryEngine:
    engine = MemoryEngine(shape, slo, ProfiledTimes(MODEL), driver.policy.at_arrival)
    for i, (cls, prompt, output, at_s, batch, deadline, can_mix) in enumerate(specs):
        engine.submit(
            Request(
                f"r{i}",
                cls,  # type: ignore[arg-type]
                prompt_tokens=prompt,  # type: ignore[arg-type]
                fill_tokens=prompt,  # type: ignore[arg-type]
                max_output_tokens=output,  # type: ignore[arg-type]
                arrival_at_s=at_s,  # type: ignore[arg-type]
                deadline_at_s=deadline,  # type: ignore[arg-type]
                batch_id=batch,  # type: ignore[arg-type]
                can_mix=can_mix,  # type: ignore[arg-type]
            )
        )
    return engine


@pytest.mark.parametrize("name", ALL)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(shape=shapes, specs=requests, slo=st.sampled_from([SLO, OUT_OF_REACH]))
def test_every_request_ends_and_no_page_is_lost(
    name: str, shape: EngineShape, specs: list[tuple[object, ...]], slo: Slo
) -> None:
    driver = Driver(create_policy(name, MODEL))
    engine = build(shape, specs, driver, slo)
    if name == "online_only":
        specs = [spec for spec in specs if spec[0] == RequestClass.ONLINE]
        engine = build(shape, specs, driver, slo)
    run(engine, driver, until_s=10_000.0)
    check_pool(engine)
    assert not engine.roster.requests
    assert len(engine.finished) == len(specs)
    for request in engine.finished.values():
        assert request.output_tokens == request.max_output_tokens
    assert engine.pool.free_pages == engine.pool.total_pages
    assert engine.pool.host_free_pages == engine.pool.host_total_pages


@pytest.mark.parametrize("name", ALL)
@settings(max_examples=15, deadline=None)
@given(shape=shapes, specs=requests)
def test_a_plan_is_a_function_of_what_was_seen(
    name: str, shape: EngineShape, specs: list[tuple[object, ...]]
) -> None:
    """Two fresh policies on the same history decide the same; planning changes no request."""
    histories = []
    for _ in range(2):
        driver = Driver(create_policy(name, MODEL))
        engine = build(shape, specs, driver)
        plans = []
        for _ in range(25):
            snapshot = engine.snapshot()
            before = [freeze(request) for request in snapshot.requests.values()]
            plan = driver.begin(snapshot).plan
            assert [freeze(request) for request in snapshot.requests.values()] == before
            plans.append(plan)
            engine.apply(plan)
            check_pool(engine)
            for outcome in engine.outcomes():
                driver.end(outcome.step_id, outcome)
            if plan.is_empty:
                engine.skip_to_next_arrival()
        histories.append(plans)
    assert histories[0] == histories[1]


@pytest.mark.parametrize("name", ALL)
def test_an_empty_engine_gets_an_empty_plan(name: str) -> None:
    driver = Driver(create_policy(name, MODEL))
    engine = MemoryEngine(EngineShape(), SLO, ProfiledTimes(MODEL))
    assert driver.begin(engine.snapshot()).plan.is_empty


@pytest.mark.parametrize("name", sorted(set(ALL) - {"online_only"}))
def test_an_online_request_starts_although_offline_requests_want_every_slot(name: str) -> None:
    driver = Driver(create_policy(name, MODEL))
    engine = MemoryEngine(EngineShape(total_pages=4000, total_slots=8), SLO, ProfiledTimes(MODEL))
    for i in range(20):
        engine.submit(Request(f"off{i}", RequestClass.OFFLINE, 64, 64, 50))
    for _ in range(12):
        engine.apply(driver.begin(engine.snapshot()).plan)
        engine.outcomes()
    assert engine.roster.num_running <= 6
    engine.submit(Request("on", RequestClass.ONLINE, 64, 64, 5, arrival_at_s=engine.now_s))
    for _ in range(12):
        engine.apply(driver.begin(engine.snapshot()).plan)
        engine.outcomes()
    assert "on" in engine.first_token_at


@pytest.mark.parametrize("name", ALL)
def test_cancelled_requests_leave_nothing_behind(name: str) -> None:
    driver = Driver(create_policy(name, MODEL))
    engine = MemoryEngine(EngineShape(delay_steps=1), SLO, ProfiledTimes(MODEL))
    for i in range(6):
        cls = RequestClass.ONLINE if i % 2 else RequestClass.OFFLINE
        engine.submit(Request(f"r{i}", cls, 64, 64, 50))
    for i in range(6):
        engine.apply(driver.begin(engine.snapshot()).plan)
        engine.cancel(f"r{i}")
        engine.outcomes()
        check_pool(engine)
    engine.process_results(0)
    assert engine.pool.free_pages == engine.pool.total_pages


@pytest.mark.parametrize("name", ALL)
def test_no_policy_sees_how_long_an_answer_will_be(name: str) -> None:
    """What is expected of a request is the same, what it turns out is not: nor does any plan."""
    histories = []
    for answer_tokens in (15, 90):
        driver = Driver(create_policy(name, MODEL))
        engine = MemoryEngine(EngineShape(total_pages=60), SLO, ProfiledTimes(MODEL))
        for i in range(12):
            cls = RequestClass.ONLINE if i % 3 == 0 else RequestClass.OFFLINE
            request = Request(f"r{i}", cls, 64, 64, 100, expected_output_tokens=20 + i)
            engine.submit(request, answer_tokens=answer_tokens)
        plans: list[StepPlan] = []
        while len(plans) < 14 and not engine.finished:
            plans.append(driver.begin(engine.snapshot()).plan)
            engine.apply(plans[-1])
            engine.outcomes()
        histories.append(plans)
    assert len(histories[0]) > 5
    assert all(a == b for a, b in zip(*histories, strict=False))


def test_the_pool_check_sees_a_lost_page() -> None:
    engine = MemoryEngine(EngineShape(), SLO, ProfiledTimes(MODEL))
    engine.pool.free_pages -= 1
    with pytest.raises(AssertionError):
        check_pool(engine)


def test_host_pages_survive_a_retract() -> None:
    """Memory pressure on the default policy: requests are fetched back, not computed again."""
    shape = EngineShape(
        total_pages=100,
        host_total_pages=2000,
        total_slots=8,
        reserved_share=0.25,
        limits=replace(EngineShape().limits, max_chunk_tokens=512),
    )
    driver = Driver(create_policy("conserve_v2", MODEL))
    engine = MemoryEngine(shape, SLO, ProfiledTimes(MODEL))
    for i in range(12):
        engine.submit(Request(f"off{i}", RequestClass.OFFLINE, 200, 200, 150, batch_id="b"))
    for i in range(10):
        engine.submit(Request(f"on{i}", RequestClass.ONLINE, 300, 300, 40, arrival_at_s=2.0 + i))
    run(engine, driver, until_s=1000.0)
    assert len(engine.finished) == 22
    assert engine.restored_tokens > 500
    assert engine.recomputed_tokens < 0.01 * engine.restored_tokens
