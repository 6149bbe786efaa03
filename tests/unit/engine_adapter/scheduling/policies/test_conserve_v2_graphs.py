"""Steps that leave the graphs when they are armed, beside steps that stay in them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from engine_adapter.scheduling.driver import Driver
from engine_adapter.scheduling.latency import Coefficients, PolynomialModel
from engine_adapter.scheduling.plan import SafepointMode, StepPlan
from engine_adapter.scheduling.policies.conserve_v2 import WORTH_A_STOP_S, ConserveV2
from engine_adapter.scheduling.policies.settings import PolicySettings
from engine_adapter.scheduling.request import Phase
from engine_adapter.scheduling.targets import Slo

if TYPE_CHECKING:
    from tests.unit.engine_adapter.conftest import World

SIZES = (16, 32, 64, 128, 256, 512, 1024)
GRAPH = Coefficients(1e-4, 0, 0, 0, 0, 0.005)
LEAN = PolicySettings(typical_online_tokens=16, growth_tokens=0)
DROP, ABORT, NONE = SafepointMode.DROP, SafepointMode.ABORT, SafepointMode.NONE


def model_of(eager_s: float) -> PolynomialModel:
    """A token takes 0.1 ms; a step 5 ms more in a graph, ``eager_s`` outside."""
    eager = replace(GRAPH, k_constant=eager_s)
    return PolynomialModel(GRAPH, GRAPH, GRAPH, (), SIZES, eager, eager)


def plan_of(world: World, model: PolynomialModel) -> StepPlan:
    world.limit(max_chunk_tokens=1024, decode_safepoints=False, eager_modes=frozenset({DROP}))
    return Driver(ConserveV2(model, LEAN)).begin(world.snapshot()).plan


def tokens_of(plan: StepPlan) -> int:
    return len(plan.decode) + sum(chunk.num_tokens for chunk in plan.prefill)


def test_a_step_that_may_be_stopped_is_predicted_outside_the_graphs(world: World) -> None:
    world.slo = Slo(ttft_s=1.0, tbt_s=0.060)
    world.online("on", phase=Phase.DECODE)
    world.offline("new", prompt=2000)
    plan = plan_of(world, model_of(eager_s=0.020))
    assert plan.safepoints.mode is DROP
    assert tokens_of(plan) == 399 // 16 * 16 + 1, "40 ms beside the 20 of an eager launch"
    assert plan.predicted_s == pytest.approx(0.020 + 1e-4 * tokens_of(plan))
    assert plan.predicted_s <= 0.060


def test_a_short_step_stays_in_its_graph_where_that_fits_more(world: World) -> None:
    """Outside 5 ms are left of the target; inside, all that is not worth a stop."""
    world.have(page_tokens=1, total_pages=9000, free_pages=9000)
    world.slo = Slo(ttft_s=1.0, tbt_s=0.025)
    world.online("on", phase=Phase.DECODE)
    world.offline("new", prompt=2000)
    plan = plan_of(world, model_of(eager_s=0.020))
    assert plan.safepoints.mode is NONE
    online_s = GRAPH.k_constant + GRAPH.k_token
    assert 0 < plan.predicted_s - online_s <= WORTH_A_STOP_S
    assert tokens_of(plan) == 64


def test_the_last_chunk_fills_the_graph(world: World) -> None:
    world.have(page_tokens=1, total_pages=9000, free_pages=9000)
    world.slo = Slo(ttft_s=1.0, tbt_s=0.015)
    world.online("on", phase=Phase.DECODE)
    world.offline("new", prompt=2000)
    plan = plan_of(world, model_of(eager_s=0.050))
    assert tokens_of(plan) == 64, "99 fit, of which 35 would be padded to as many again"
    world.roster.requests["new"].fill_tokens = 90
    plan = plan_of(world, model_of(eager_s=0.050))
    assert tokens_of(plan) == 64, "so do 90, but not the 128 that they would be padded to"


def test_a_prompt_that_ends_is_not_cut_for_its_graph(world: World) -> None:
    world.have(page_tokens=1, total_pages=9000, free_pages=9000)
    world.slo = Slo(ttft_s=1.0, tbt_s=0.100)
    world.online("on", prompt=70)
    plan = plan_of(world, model_of(eager_s=0.020))
    assert [chunk.num_tokens for chunk in plan.prefill] == [70]
    assert plan.predicted_s == pytest.approx(0.005 + 1e-4 * 128)


def test_alone_a_pass_that_is_stopped_between_segments_stays_in_its_graph(world: World) -> None:
    world.offline("new", prompt=2000)
    plan = plan_of(world, model_of(eager_s=0.020))
    assert plan.safepoints.mode is ABORT
    assert plan.predicted_s == pytest.approx(0.005 + 1e-4 * 1024)


def test_alone_a_pass_without_segments_is_predicted_outside_it(world: World) -> None:
    world.offline("new", prompt=2000)
    world.limit(max_chunk_tokens=1024, eager_modes=frozenset({DROP, ABORT}))
    plan = Driver(ConserveV2(model_of(eager_s=0.020), LEAN)).begin(world.snapshot()).plan
    assert plan.safepoints.mode is ABORT
    assert plan.predicted_s == pytest.approx(0.020 + 1e-4 * 1024)


def test_without_graphs_there_is_nothing_to_choose(world: World) -> None:
    """The same plan whatever is said of modes."""
    world.slo = Slo(ttft_s=1.0, tbt_s=0.060)
    world.online("on", phase=Phase.DECODE)
    world.offline("new", prompt=2000)
    plain = PolynomialModel(GRAPH, GRAPH, GRAPH)
    plan = plan_of(world, plain)
    world.limit(eager_modes=frozenset())
    other = Driver(ConserveV2(plain, LEAN)).begin(world.snapshot()).plan
    assert replace(other, step_id=plan.step_id) == plan


# --- The time a device stands still before a step that may be stopped, with or without graphs.


def plan_with_gap(world: World, gap_s: float) -> StepPlan:
    world.have(page_tokens=1, total_pages=9000, free_pages=9000)
    world.limit(max_chunk_tokens=1024, decode_safepoints=False)
    world.online("on", phase=Phase.DECODE)
    world.offline("new", prompt=2000)
    plain = PolynomialModel(GRAPH, GRAPH, GRAPH)
    snapshot = replace(world.snapshot(), armed_gap_s=gap_s)
    return Driver(ConserveV2(plain, LEAN)).begin(snapshot).plan


def test_the_gap_is_taken_off_a_step_that_may_be_stopped(world: World) -> None:
    world.slo = Slo(ttft_s=1.0, tbt_s=0.060)
    plan = plan_with_gap(world, 0.004)
    assert plan.safepoints.mode is DROP
    assert plan.predicted_s == pytest.approx(0.056, abs=2e-4)


def test_a_step_that_the_gap_costs_more_than_a_stop_is_worth_is_short(world: World) -> None:
    """11 ms are left beside chat; with the gap 7 of them, without a stop 10."""
    world.slo = Slo(ttft_s=1.0, tbt_s=0.0161)
    plan = plan_with_gap(world, 0.004)
    assert plan.safepoints.mode is NONE
    assert plan.predicted_s == pytest.approx(0.0151, abs=2e-4)
