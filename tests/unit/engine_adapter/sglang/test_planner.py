"""Which policy plans, before and after a profile is there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from engine_adapter.runtime_settings import RuntimeSettings
from engine_adapter.scheduling.latency import PolynomialModel
from engine_adapter.scheduling.plan import FinishedStep, Outcome, StepKind, StepPlan
from engine_adapter.scheduling.policies.base import PolicyBase
from engine_adapter.scheduling.policies.settings import Level, PolicySettings
from engine_adapter.scheduling.request import Phase
from engine_adapter.scheduling.snapshot import Snapshot
from engine_adapter.sglang.counters import Counters
from engine_adapter.sglang.planner import (
    ROOM_EVERY_S,
    ROOM_TURN_S,
    TOKENS_WHILE_MEASURING,
    Planner,
)

if TYPE_CHECKING:
    from tests.unit.engine_adapter.conftest import World


def planner(model: PolynomialModel, *, measuring: bool) -> Planner:
    settings = RuntimeSettings(policy="conserve_v2")
    return Planner(settings, Counters(), model, measuring=measuring)


def test_without_a_profile_steps_are_short_and_of_one_kind(
    world: World, model: PolynomialModel
) -> None:
    for i in range(6):
        world.offline(f"running{i}", phase=Phase.DECODE)
        world.offline(f"waiting{i}", prompt=400)
    unprofiled = planner(model, measuring=True)
    assert unprofiled.policy_name == "sarathi_p"
    plan = unprofiled.begin(world.snapshot())
    assert plan.kind is StepKind.PREFILL
    assert 0 < plan.num_tokens <= TOKENS_WHILE_MEASURING
    assert unprofiled._counters.rejected_plans == 0


def test_beside_an_answer_being_written_prompts_of_offline_requests_wait(
    world: World, model: PolynomialModel
) -> None:
    world.online("chat", phase=Phase.DECODE)
    world.offline("waiting", prompt=400)
    plan = planner(model, measuring=True).begin(world.snapshot())
    assert (plan.decode, plan.prefill) == (("chat",), ())


def test_until_there_is_a_profile_offline_requests_run_while_there_is_no_chat(
    world: World, model: PolynomialModel
) -> None:
    now = planner(model, measuring=True)
    for i in range(6):
        world.offline(f"running{i}", phase=Phase.DECODE)
    assert len(now.begin(world.snapshot()).decode) == 6
    world.online("chat", phase=Phase.DECODE)
    assert now.begin(world.snapshot()).decode == ("chat",)
    assert now._counters.rejected_plans == 0


def test_the_level_is_that_of_the_policy_in_use(model: PolynomialModel) -> None:
    now = planner(model, measuring=True)
    assert now.slowdown == 1.0  # counts tokens, follows nothing
    now.use_model(model)
    now.driver.policy.steps.slowdown = 1.25  # type: ignore[attr-defined]
    assert now.slowdown == 1.25


def test_with_a_profile_the_chosen_policy_plans_and_may_mix(
    world: World, model: PolynomialModel
) -> None:
    now = planner(model, measuring=True)
    now.use_model(model)
    assert now.policy_name == "conserve_v2"
    world.online("chat", phase=Phase.DECODE)
    world.online("next", prompt=16)
    assert now.begin(world.snapshot()).kind is StepKind.MIXED


def test_an_unknown_policy_is_one_sentence(model: PolynomialModel) -> None:
    with pytest.raises(ValueError, match=r"unknown policy 'x'; choose one of .*conserve_v1"):
        Planner(RuntimeSettings(policy="x"), Counters(), model, measuring=False)


def test_offline_requests_make_room_for_a_measurement_in_turns(
    world: World, model: PolynomialModel
) -> None:
    world.offline("begun", phase=Phase.PREFILL, prompt=40, computed=20)
    world.offline("waiting", prompt=40)
    now = planner(model, measuring=True)

    def taken(at_s: float, *, make_room: bool = True) -> set[str]:
        world.now_s = at_s
        return {chunk.rid for chunk in now.begin(world.snapshot(), make_room=make_room).prefill}

    assert taken(100.0, make_room=False) == {"begun", "waiting"}
    asked_at_s = 101.0
    assert taken(asked_at_s) == {"begun"}
    assert taken(asked_at_s + ROOM_TURN_S - 0.1) == {"begun"}
    assert taken(asked_at_s + ROOM_TURN_S + 0.1) == {"begun", "waiting"}
    assert taken(asked_at_s + ROOM_EVERY_S - 0.1) == {"begun", "waiting"}
    assert taken(asked_at_s + ROOM_EVERY_S + 0.1) == {"begun"}


class _Broken(PolicyBase):
    """Raises where a policy with a defect would."""

    name = "broken"

    def plan(self, snapshot: Snapshot) -> StepPlan:
        raise ZeroDivisionError("division by zero")

    def observe(self, step: FinishedStep) -> None:
        raise KeyError("a")


def test_an_error_of_the_policy_costs_its_plan_and_is_said(
    world: World, model: PolynomialModel
) -> None:
    world.online("chat", phase=Phase.DECODE)
    now = planner(model, measuring=False)
    now.use(_Broken(model, PolicySettings()))
    plan = now.begin(world.snapshot())
    assert plan.decode == ("chat",)
    said = now._counters.to_plain()
    assert said["policy_errors"] == 1
    assert said["last_policy_error"] == "broken: ZeroDivisionError: division by zero"


def test_an_error_in_a_report_does_not_end_the_engine(world: World, model: PolynomialModel) -> None:
    world.online("chat", phase=Phase.DECODE)
    now = planner(model, measuring=False)
    now.use_model(model)
    plan = now.begin(world.snapshot())
    now.use(_Broken(model, PolicySettings()))
    now.end(Outcome(step_id=plan.step_id, measured_s=0.01, online_tokens=1, offline_tokens=0))
    assert now._counters.policy_errors == 1
    assert "KeyError" in now._counters.last_policy_error


def test_the_level_changes_while_it_plans(world: World, model: PolynomialModel) -> None:
    for i in range(4):
        world.online(f"chat{i}", phase=Phase.DECODE)
        world.offline(f"document{i}", prompt=400)
    now = planner(model, measuring=False)
    tokens = {}
    for level in (Level.MAX, Level.INVISIBLE, Level.MAX):
        now.use_level(level)
        assert now.level is level
        tokens[level] = now.begin(world.snapshot()).num_tokens
    assert tokens[Level.INVISIBLE] < tokens[Level.MAX]


def test_a_level_set_before_the_profile_is_there_stays(model: PolynomialModel) -> None:
    now = planner(model, measuring=True)
    now.use_level(Level.INVISIBLE)
    now.use_model(model)
    policy = now.driver.policy
    assert isinstance(policy, PolicyBase)
    assert policy.settings.level is Level.INVISIBLE


def test_a_policy_without_levels_reports_none(model: PolynomialModel) -> None:
    plain = Planner(RuntimeSettings(policy="sarathi_p"), Counters(), model, measuring=False)
    assert plain.level is None
