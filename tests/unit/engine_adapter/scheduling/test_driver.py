from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from engine_adapter.scheduling.driver import Driver, PlanRejected
from engine_adapter.scheduling.plan import (
    Arrival,
    Decision,
    FinishedStep,
    Outcome,
    RunningStep,
    Safepoints,
    StepKind,
    StepPlan,
)
from engine_adapter.scheduling.request import Phase, RequestClass
from engine_adapter.scheduling.snapshot import Snapshot
from engine_adapter.scheduling.targets import Slo

if TYPE_CHECKING:
    from tests.unit.engine_adapter.conftest import World


class Scripted:
    """Answers with what it was given."""

    name = "scripted"

    def __init__(self, *decode: str) -> None:
        self.decode = decode
        self.observed: list[FinishedStep] = []

    def plan(self, snapshot: Snapshot) -> StepPlan:
        return StepPlan(snapshot.step_id, decode=self.decode, predicted_s=0.1)

    def at_arrival(self, arrival: Arrival, step: RunningStep) -> Decision:
        return Decision.STOP_AT_NEXT_SAFEPOINT

    def observe(self, step: FinishedStep) -> None:
        self.observed.append(step)


def test_outcomes_find_their_plan_one_step_late(world: World) -> None:
    world.offline("a", phase=Phase.DECODE)
    policy = Scripted("a")
    driver = Driver(policy)
    first = driver.begin(world.snapshot())
    second = driver.begin(world.snapshot())
    driver.end(first.step_id, Outcome(first.step_id, 0.2))
    driver.end(second.step_id, Outcome(second.step_id, 0.3))
    assert [(s.plan.step_id, s.outcome.measured_s) for s in policy.observed] == [
        (1, 0.2),
        (2, 0.3),
    ]


def test_an_outcome_is_reported_once(world: World) -> None:
    world.offline("a", phase=Phase.DECODE)
    driver = Driver(Scripted("a"))
    step = driver.begin(world.snapshot())
    assert driver.end(step.step_id, Outcome(step.step_id, 0.1)) is not None
    assert driver.end(step.step_id, Outcome(step.step_id, 0.1)) is None
    with pytest.raises(ValueError, match="outcome of step 5 reported for step 6"):
        driver.end(6, Outcome(5, 0.1))


def test_an_idle_plan_expects_no_outcome(world: World) -> None:
    driver = Driver(Scripted())
    step = driver.begin(world.snapshot())
    assert driver.end(step.step_id, Outcome(step.step_id, 0.1)) is None


def test_forgotten_outcomes_do_not_pile_up(world: World) -> None:
    world.offline("a", phase=Phase.DECODE)
    policy = Scripted("a")
    driver = Driver(policy, max_pending=2)
    for _ in range(3):
        driver.begin(world.snapshot())
    assert driver.end(1, Outcome(1, 0.1)) is None
    assert driver.end(3, Outcome(3, 0.1)) is not None


def test_a_cheat_is_rejected_before_anything_is_applied(world: World) -> None:
    driver = Driver(Scripted("ghost"))
    with pytest.raises(PlanRejected, match="plan of step 1 rejected: decode names unknown"):
        driver.begin(world.snapshot())
    assert driver.end(1, Outcome(1, 0.1)) is None


def test_step_ids_increase(world: World) -> None:
    driver = Driver(Scripted())
    snapshot = world.snapshot()
    driver.begin(snapshot)
    with pytest.raises(ValueError, match="ids must increase"):
        driver.begin(snapshot)


def test_without_a_running_step_there_is_nothing_to_stop() -> None:
    driver = Driver(Scripted())
    arrival = Arrival(RequestClass.ONLINE, 10, at_s=0.0)
    step = RunningStep(1, StepKind.DECODE, 0.0, 0.1, 1, 0, Safepoints(), 0, Slo(1, 1))
    assert driver.arrival(arrival, None) is Decision.CONTINUE
    assert driver.arrival(arrival, step) is Decision.STOP_AT_NEXT_SAFEPOINT


def test_a_switched_policy_takes_the_open_steps_over(world: World) -> None:
    world.offline("a", phase=Phase.DECODE)
    driver = Driver(Scripted("a"))
    step = driver.begin(world.snapshot())
    later = Scripted("a")
    driver.switch(later)
    driver.end(step.step_id, Outcome(step.step_id, 0.1))
    assert len(later.observed) == 1
