"""The engine in memory, step by step: 10 ms plus 1 ms per token."""

from __future__ import annotations

import pytest

from engine_adapter.scheduling.driver import Driver
from engine_adapter.scheduling.latency import PolynomialModel
from engine_adapter.scheduling.plan import (
    Arrival,
    Chunk,
    Decision,
    Restore,
    Retract,
    RunningStep,
    SafepointMode,
    Safepoints,
    StepPlan,
)
from engine_adapter.scheduling.policies.registry import create_policy
from engine_adapter.scheduling.request import Phase, Request, RequestClass
from engine_adapter.scheduling.snapshot import EngineLimits
from engine_adapter.scheduling.targets import Slo
from lab.simulator.engine import MemoryEngine
from lab.simulator.run import Stuck, run
from lab.simulator.shape import EngineShape
from lab.simulator.times import Noise, ProfiledTimes


def request(rid: str, cls: RequestClass = RequestClass.OFFLINE, at_s: float = 0.0) -> Request:
    return Request(rid, cls, 90, 90, max_output_tokens=2, arrival_at_s=at_s)


def engine(model: PolynomialModel, **shape: object) -> MemoryEngine:
    return MemoryEngine(EngineShape(**shape), Slo(1.0, 0.1), ProfiledTimes(model))  # type: ignore[arg-type]


def test_a_prompt_then_a_token(model: PolynomialModel) -> None:
    e = engine(model)
    e.submit(request("a"))
    e.snapshot()
    e.apply(StepPlan(0, prefill=(Chunk("a", 90),)))
    assert e.now_s == pytest.approx(0.100)
    e.outcomes()
    assert e.first_token_at == {"a": pytest.approx(0.100)}
    e.snapshot()
    e.apply(StepPlan(1, decode=("a",)))
    e.outcomes()
    assert e.token_times["a"] == pytest.approx([0.100, 0.111])
    assert list(e.finished) == ["a"]
    assert e.pool.free_pages == e.pool.total_pages


def test_with_delay_a_result_is_known_one_step_later(model: PolynomialModel) -> None:
    e = engine(model, delay_steps=1)
    e.submit(request("a"))
    e.snapshot()
    e.apply(StepPlan(0, prefill=(Chunk("a", 90),)))
    assert e.outcomes() == []
    a = e.roster.requests["a"]
    assert (a.in_flight, a.phase, a.output_tokens) == (True, Phase.DECODE, 0)
    e.snapshot()
    e.apply(StepPlan(1, decode=("a",)))
    assert [outcome.step_id for outcome in e.outcomes()] == [0]


def stop_always(arrival: Arrival, step: RunningStep) -> Decision:
    return Decision.STOP_AT_NEXT_SAFEPOINT


@pytest.mark.parametrize(("num_layers", "stopped_at_s"), [(1, 0.030), (5, 0.040)])
def test_an_arrival_stops_an_armed_step_at_the_next_safepoint(
    model: PolynomialModel, num_layers: int, stopped_at_s: float
) -> None:
    """Every 10 ms, but never inside a layer: of five, each takes 20 ms."""
    shape = EngineShape(limits=EngineLimits(num_layers=num_layers))
    e = MemoryEngine(shape, Slo(1.0, 0.1), ProfiledTimes(model), stop_always)
    e.submit(request("off"))
    e.submit(request("on", RequestClass.ONLINE, at_s=0.025))
    e.snapshot()
    e.apply(
        StepPlan(
            0,
            prefill=(Chunk("off", 90),),
            safepoints=Safepoints(SafepointMode.ABORT, 0.010),
            predicted_s=0.1,
        )
    )
    assert e.now_s == pytest.approx(stopped_at_s)
    [outcome] = e.outcomes()
    assert (outcome.dropped, outcome.offline_tokens) == (("off",), 0)
    off = e.roster.requests["off"]
    assert (off.computed_tokens, off.device_pages, off.phase) == (0, 0, Phase.PREFILL)


def test_a_drop_lets_the_online_requests_finish(model: PolynomialModel) -> None:
    e = MemoryEngine(EngineShape(), Slo(1.0, 0.1), ProfiledTimes(model), stop_always)
    e.submit(request("on1", RequestClass.ONLINE))
    e.snapshot()
    e.apply(StepPlan(0, prefill=(Chunk("on1", 90),)))
    e.outcomes()
    e.submit(request("off"))
    e.submit(request("on2", RequestClass.ONLINE, at_s=0.110))
    e.snapshot()
    e.apply(
        StepPlan(
            1,
            decode=("on1",),
            prefill=(Chunk("off", 90),),
            safepoints=Safepoints(SafepointMode.DROP, 0.020),
            predicted_s=0.101,
        )
    )
    [outcome] = e.outcomes()
    assert outcome.dropped == ("off",)
    assert len(e.token_times["on1"]) == 2
    # 20 of 101 ms ran, the rest of the pass is that of one decode request: 81 % of 11 ms
    assert outcome.measured_s == pytest.approx(0.020 + 0.011 * (1 - 20 / 101))


def test_an_unarmed_step_runs_to_its_end(model: PolynomialModel) -> None:
    e = MemoryEngine(EngineShape(), Slo(1.0, 0.1), ProfiledTimes(model), stop_always)
    e.submit(request("off"))
    e.submit(request("on", RequestClass.ONLINE, at_s=0.025))
    e.snapshot()
    e.apply(StepPlan(0, prefill=(Chunk("off", 90),), predicted_s=0.1))
    assert e.now_s == pytest.approx(0.100)


def test_checkpoint_retract_restore_loses_nothing(model: PolynomialModel) -> None:
    from engine_adapter.scheduling.plan import Checkpoint

    e = engine(model)
    a = request("a")
    a.max_output_tokens = 9
    e.submit(a)
    e.snapshot()
    e.apply(StepPlan(0, prefill=(Chunk("a", 90),)))
    e.outcomes()
    e.apply(StepPlan(1, decode=("a",), checkpoints=(Checkpoint("a", 0, 5),)))
    e.outcomes()
    assert (a.computed_tokens, a.output_tokens, a.host_pages) == (91, 2, 5)
    e.apply(StepPlan(2, retracts=("a",)))
    # the unfinished sixth page went to the host with the retract
    assert (a.phase, a.host_tokens, a.host_pages, a.device_pages) == (Phase.RETRACTED, 91, 6, 0)
    e.apply(StepPlan(3, restores=(Restore("a", 0, 4),)))
    assert (a.phase, a.computed_tokens) == (Phase.RESTORING, 64)
    e.apply(StepPlan(4, restores=(Restore("a", 4, 2),)))
    assert (a.phase, a.computed_tokens) == (Phase.DECODE, 91)
    e.apply(StepPlan(5, decode=("a",)))
    e.outcomes()
    assert (e.restored_tokens, e.recomputed_tokens, a.output_tokens) == (91, 0, 3)


def test_a_retract_copies_the_last_page_and_one_just_completed(model: PolynomialModel) -> None:
    e = engine(model)
    short, long = request("short"), request("long")
    short.prompt_tokens = short.fill_tokens = 30
    for each in (short, long):
        e.submit(each)
    e.snapshot()
    e.apply(StepPlan(0, prefill=(Chunk("short", 30), Chunk("long", 90))))
    e.outcomes()
    e.apply(StepPlan(1, retracts=("short", "long")))
    assert (short.host_pages, short.host_tokens) == (2, 30)
    assert (long.host_pages, long.host_tokens) == (0, 0)


def test_an_end_that_was_taken_is_fetched_and_the_beginning_was_never_gone(
    model: PolynomialModel,
) -> None:
    e = engine(model)
    a = request("a")
    a.max_output_tokens = 9
    e.submit(a)
    e.snapshot()
    e.apply(StepPlan(0, prefill=(Chunk("a", 90),)))
    e.outcomes()
    free = e.pool.free_pages
    e.apply(StepPlan(1, cuts=(Retract("a", 48),)))
    assert (a.phase, a.computed_tokens, a.device_pages) == (Phase.RESTORING, 48, 3)
    assert e.pool.free_pages == free + 3
    e.apply(StepPlan(2, restores=(Restore("a", 3, 3),)))
    assert (a.phase, a.computed_tokens, a.host_pages) == (Phase.DECODE, 90, 0)
    assert (e.restored_tokens, e.recomputed_tokens, e.num_cuts) == (42, 0, 1)
    assert e.pool.host_free_pages == e.pool.host_total_pages


@pytest.mark.parametrize(("kept", "on_host"), [((48,), 0), ((48, 16), 90)])
def test_a_request_without_its_end_gives_way(
    model: PolynomialModel, kept: tuple[int, ...], on_host: int
) -> None:
    """A short beginning is copied with the retract; a long one is lost, and the end with it."""
    e = engine(model)
    a = request("a")
    e.submit(a)
    e.snapshot()
    e.apply(StepPlan(0, prefill=(Chunk("a", 90),)))
    e.outcomes()
    for number, tokens in enumerate(kept, start=1):
        e.apply(StepPlan(number, cuts=(Retract("a", tokens),)))
        assert a.computed_tokens == tokens
    e.apply(StepPlan(9, retracts=("a",)))
    assert (a.phase, a.computed_tokens, a.host_tokens) == (Phase.RETRACTED, 0, on_host)
    assert e.pool.free_pages == e.pool.total_pages
    assert e.pool.host_free_pages == e.pool.host_total_pages - (6 if on_host else 0)


def test_a_page_given_out_twice_is_noticed(model: PolynomialModel) -> None:
    e = engine(model, total_pages=5)
    e.submit(request("a"))
    e.snapshot()
    with pytest.raises(MemoryError, match="-1 of 5 device pages free"):
        e.apply(StepPlan(0, prefill=(Chunk("a", 90),)))


def test_a_starving_policy_is_noticed(model: PolynomialModel) -> None:
    e = engine(model)
    e.submit(request("a"))
    with pytest.raises(Stuck, match="1 live requests, none of them runs"):
        run(e, Driver(create_policy("online_only", model)), until_s=10.0)


def test_an_idle_engine_waits_for_the_next_arrival(model: PolynomialModel) -> None:
    e = engine(model)
    e.submit(request("a", at_s=5.0))
    run(e, Driver(create_policy("conserve_v2", model)), until_s=10.0)
    assert e.first_token_at["a"] == pytest.approx(5.100)


def test_copies_take_their_time_on_the_link(model: PolynomialModel) -> None:
    from engine_adapter.scheduling.plan import Checkpoint

    e = engine(model, page_copy_s=0.010)
    a, b = request("a"), request("b")
    a.max_output_tokens = b.max_output_tokens = 9
    for each in (a, b):
        e.submit(each)
    e.snapshot()
    e.apply(StepPlan(0, prefill=(Chunk("a", 90), Chunk("b", 90))))  # to 0.190 s
    e.outcomes()
    orders = (Checkpoint("a", 0, 2), Checkpoint("b", 0, 4))
    e.apply(StepPlan(1, decode=("a", "b"), checkpoints=orders))  # to 0.202 s
    assert [(r.host_pages, r.host_pages_pending) for r in (a, b)] == [(0, 2), (0, 4)]
    e.outcomes()
    e.apply(StepPlan(2, decode=("a", "b")))  # to 0.214 s: two pages of 10 ms are over
    assert [(r.host_pages, r.host_pages_pending) for r in (a, b)] == [(2, 0), (0, 4)]
    e.outcomes()
    e.apply(StepPlan(3))  # nothing to compute: the clock goes to the end of the other copy
    assert e.now_s == pytest.approx(0.190 + 0.060)
    assert [(r.host_pages, r.host_tokens) for r in (a, b)] == [(2, 32), (4, 64)]
    e.apply(StepPlan(4, retracts=("b",)))
    assert (b.host_pages, b.host_tokens) == (6, 92)  # the tail went with the retract
    e.apply(StepPlan(5, restores=(Restore("b", 0, 6),), decode=("a",)))
    assert [
        request.rid for request in e.roster.requests.values() if request.phase is Phase.RESTORING
    ] == ["b"]
    e.outcomes()
    e.apply(StepPlan(6))
    assert [
        request.rid for request in e.roster.requests.values() if request.phase is Phase.DECODE
    ] == ["a", "b"]
    assert e.now_s == pytest.approx(0.310)


def test_overhead_comes_before_every_step(model: PolynomialModel) -> None:
    e = engine(model, overhead_s=0.005)
    e.submit(request("a"))
    assert e.snapshot().overhead_s == 0.005
    e.apply(StepPlan(0, prefill=(Chunk("a", 90),)))
    assert e.now_s == pytest.approx(0.105)


def test_noise_is_in_what_steps_take(model: PolynomialModel) -> None:
    noise = Noise(0.5, 0.0, seed=1)
    first = Noise(0.5, 0.0, seed=1).next()
    e = MemoryEngine(EngineShape(), Slo(1.0, 0.1), ProfiledTimes(model), noise=noise)
    e.submit(request("a"))
    e.snapshot()
    e.apply(StepPlan(0, prefill=(Chunk("a", 90),)))
    [outcome] = e.outcomes()
    assert outcome.measured_s == pytest.approx(0.100 * first)
    assert first != 1.0


def test_arrivals_come_in_order_however_they_are_submitted(model: PolynomialModel) -> None:
    e = engine(model)
    for name, at_s in (("c", 3.0), ("a", 1.0), ("b", 2.0)):
        e.submit(request(name, at_s=at_s))
    run(e, Driver(create_policy("non_preemptive", model)), until_s=10.0)
    assert sorted(e.first_token_at, key=e.first_token_at.__getitem__) == ["a", "b", "c"]


def test_a_request_retracted_in_flight_loses_the_result_on_its_way(model: PolynomialModel) -> None:
    limits = EngineLimits(retracts_in_flight=True)
    e = engine(model, delay_steps=1, limits=limits, host_total_pages=0)
    e.submit(request("a"))
    e.snapshot()
    e.apply(StepPlan(0, prefill=(Chunk("a", 90),)))
    e.snapshot()
    e.apply(StepPlan(1, decode=("a",)))
    e.outcomes()
    a = e.roster.requests["a"]
    assert (a.output_tokens, a.in_flight) == (1, True)
    e.snapshot()
    e.apply(StepPlan(2, retracts=("a",)))
    assert (a.phase, a.output_tokens, a.in_flight) == (Phase.RETRACTED, 1, False)
    assert a.fill_tokens == 91  # its one token is part of what is computed again
    e.snapshot()
    e.apply(StepPlan(3, prefill=(Chunk("a", 91),)))
    e.process_results(0)
    assert list(e.finished) == ["a"]
    assert len(e.token_times["a"]) == 2
    assert e.pool.free_pages == e.pool.total_pages


def test_the_prefix_tree_keeps_prompts_until_pages_are_short(model: PolynomialModel) -> None:
    e = engine(model, page_tokens=1, total_pages=200, keeps_prompts=True, host_total_pages=0)
    e.submit(request("a"))
    e.submit(request("b"))
    e.snapshot()
    e.apply(StepPlan(0, prefill=(Chunk("a", 90),)))
    e.outcomes()
    e.snapshot()
    e.apply(StepPlan(1, retracts=("a",)))
    a = e.roster.requests["a"]
    assert a.cached_tokens == 89
    assert e.snapshot().resources.available_pages == 200
    e.apply(StepPlan(2, prefill=(Chunk("a", 2), Chunk("b", 90))))
    e.outcomes()
    assert e.recomputed_tokens == 1
    assert list(e.finished) == ["a"]
    resources = e.snapshot().resources
    assert (resources.free_pages, resources.evictable_pages) == (21, 89)
