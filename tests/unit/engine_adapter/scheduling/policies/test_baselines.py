"""The policies the default is held against."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from engine_adapter.scheduling.driver import Driver
from engine_adapter.scheduling.latency import PolynomialModel
from engine_adapter.scheduling.plan import Chunk, SafepointMode
from engine_adapter.scheduling.policies.registry import create_policy
from engine_adapter.scheduling.policies.settings import PolicySettings
from engine_adapter.scheduling.request import Phase

if TYPE_CHECKING:
    from engine_adapter.scheduling.plan import StepPlan
    from tests.unit.engine_adapter.conftest import World

DECODE, PREFILL = Phase.DECODE, Phase.PREFILL
LEAN = PolicySettings(growth_tokens=0, token_budget=64)


def plan_of(name: str, world: World, model: PolynomialModel) -> StepPlan:
    return Driver(create_policy(name, model, LEAN)).begin(world.snapshot()).plan


def test_online_only_never_runs_offline_requests(world: World, model: PolynomialModel) -> None:
    world.offline("d", phase=DECODE)
    world.offline("w")
    assert plan_of("online_only", world, model).is_empty
    world.online("on")
    plan = plan_of("online_only", world, model)
    assert (plan.decode, plan.prefill) == ((), (Chunk("on", 100),))


@pytest.mark.parametrize("name", ["online_only", "sarathi_p", "non_preemptive"])
def test_a_policy_that_never_fetches_computes_a_retracted_request_again(
    name: str, world: World, model: PolynomialModel
) -> None:
    """A pause or another policy may have left its KV on the host: it must not wait for ever."""
    world.online("on", phase=Phase.RETRACTED, prompt=30, host_pages=2, host_tokens=30)
    assert plan_of(name, world, model).prefill == (Chunk("on", 30),)


def test_sarathi_p_passes_over_a_prompt_that_cannot_share_the_step(
    world: World, model: PolynomialModel
) -> None:
    world.online("on", phase=DECODE)
    world.offline("logprobs", prompt=32, can_mix=False)
    world.offline("plain", prompt=32)
    plan = plan_of("sarathi_p", world, model)
    assert (plan.decode, plan.prefill) == (("on",), (Chunk("plain", 32),))


def test_non_preemptive_parks_nobody_and_fills_the_chunk(
    world: World, model: PolynomialModel
) -> None:
    world.offline("d", phase=DECODE)
    world.online("on", phase=DECODE)
    world.offline("half", phase=PREFILL, computed=16)
    world.offline("w", prompt=900)
    world.online("new")
    plan = plan_of("non_preemptive", world, model)
    assert plan.decode == ("on", "d")
    # the half-filled request goes on, then online before offline
    assert plan.prefill == (Chunk("half", 84), Chunk("new", 100), Chunk("w", 320))
    assert plan.parks == ()
    assert plan.safepoints.mode is SafepointMode.NONE


def test_non_preemptive_takes_no_pages_for_an_arrival(world: World, model: PolynomialModel) -> None:
    world.have(free_pages=2)
    world.offline("d", phase=DECODE)
    world.online("new")
    plan = plan_of("non_preemptive", world, model)
    assert (plan.retracts, plan.prefill) == ((), ())


def test_non_preemptive_alternates_where_steps_cannot_mix(
    world: World, model: PolynomialModel
) -> None:
    world.limit(can_mix=False)
    world.offline("d", phase=DECODE)
    world.offline("w", prompt=2000)
    driver = Driver(create_policy("non_preemptive", model, LEAN))
    kinds = [str(driver.begin(world.snapshot()).plan.kind) for _ in range(4)]
    assert kinds == ["prefill", "decode", "prefill", "decode"]


def test_sarathi_counts_tokens_decode_requests_included(
    world: World, model: PolynomialModel
) -> None:
    world.online("on", phase=DECODE)
    world.offline("d", phase=DECODE)
    world.offline("w", prompt=900)
    plan = plan_of("sarathi_p", world, model)
    assert plan.decode == ("on", "d")
    assert plan.prefill == (Chunk("w", 48),)  # 64 - 2, cut to a page


def test_sarathi_preempts_by_discarding(world: World, model: PolynomialModel) -> None:
    world.have(free_pages=0)
    world.offline("d", phase=DECODE)
    world.online("on", prompt=48)
    plan = plan_of("sarathi_p", world, model)
    assert plan.retracts == ("d",)
    assert plan.prefill == (Chunk("on", 48),)
    assert plan.checkpoints == ()


def test_sarathi_needs_no_latency_model(world: World, model: PolynomialModel) -> None:
    """The same decisions with a model that is a hundred times off."""
    from engine_adapter.scheduling.latency import Coefficients

    k = Coefficients(0.1, 0, 0, 0, 0, 1.0)
    wrong = PolynomialModel(k, k, k)
    world.online("on", phase=DECODE)
    world.online("new")
    world.offline("w", prompt=900)
    right_plan = plan_of("sarathi_p", world, model)
    wrong_plan = plan_of("sarathi_p", world, wrong)
    assert (right_plan.decode, right_plan.prefill) == (wrong_plan.decode, wrong_plan.prefill)


def test_sarathi_decodes_offline_requests_where_steps_cannot_mix(
    world: World, model: PolynomialModel
) -> None:
    world.limit(can_mix=False)
    world.online("on", phase=DECODE)
    world.offline("d", phase=DECODE)
    world.offline("w", prompt=900)
    assert plan_of("sarathi_p", world, model).decode == ("on", "d")
    world.roster.finish("on")
    assert plan_of("sarathi_p", world, model).prefill == (Chunk("w", 48),)
