"""The simulator keeps what the port between driver and engine promises of a step's two halves."""

from __future__ import annotations

from engine_adapter.scheduling.latency import PolynomialModel
from engine_adapter.scheduling.plan import Chunk, StepPlan
from tests.unit.lab.simulator.test_engine import engine, request


def test_a_composed_step_has_its_pages_and_no_time_has_passed(model: PolynomialModel) -> None:
    e = engine(model)
    e.submit(request("a"))
    free = e.snapshot().resources.free_pages
    step = e.compose(StepPlan(0, prefill=(Chunk("a", 90),)))
    assert step is not None
    assert e.pool.free_pages < free
    assert (e.now_s, e.num_steps, e.outcomes()) == (0.0, 0, [])
    running = e.launch(step)
    assert (running.step_id, running.num_offline_requests) == (0, 1)
    assert e.now_s > 0.0
    assert [outcome.step_id for outcome in e.outcomes()] == [0]


def test_to_apply_is_to_compose_and_launch(model: PolynomialModel) -> None:
    halves, whole = engine(model), engine(model)
    plan = StepPlan(0, prefill=(Chunk("a", 90),))
    for e in (halves, whole):
        e.submit(request("a"))
        e.snapshot()
    step = halves.compose(plan)
    assert step is not None
    assert halves.launch(step) == whole.apply(plan)
    assert halves.outcomes() == whole.outcomes()
    halves.snapshot()
    assert halves.compose(StepPlan(1)) is None
    assert whole.apply(StepPlan(1)) is None
