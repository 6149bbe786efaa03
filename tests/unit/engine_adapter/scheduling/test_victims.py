"""Who gives way where requests share pages: three requests of 8 pages, nothing free."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from engine_adapter.scheduling.driver import Driver
from engine_adapter.scheduling.latency import PolynomialModel
from engine_adapter.scheduling.plan import StepPlan
from engine_adapter.scheduling.policies.conserve_v2 import ConserveV2
from engine_adapter.scheduling.policies.settings import PolicySettings
from engine_adapter.scheduling.request import Phase, SharedPages

if TYPE_CHECKING:
    from tests.unit.engine_adapter.conftest import World

HEAD, ONLINE_HEAD = 1, 2


@pytest.fixture
def shared(world: World) -> World:
    """a and b have 6 pages in common, c 6 with an online request; all decode."""
    world.have(total_pages=64, free_pages=0, host_total_pages=0, host_free_pages=0)
    for rid, node in (("a", HEAD), ("b", HEAD), ("c", ONLINE_HEAD)):
        made = world.offline(rid, prompt=120, phase=Phase.DECODE)
        made.shared = (SharedPages(node, 6, holders=2),)
    earlier = world.online("earlier", prompt=120, phase=Phase.DECODE)
    earlier.shared = (SharedPages(ONLINE_HEAD, 6, holders=2),)
    return world


def planned(world: World, model: PolynomialModel) -> StepPlan:
    settings = PolicySettings(growth_tokens=0)  # whoever comes needs its prompt, and no more
    return Driver(ConserveV2(model, settings)).begin(world.snapshot()).plan


@pytest.mark.parametrize(
    ("tokens", "retracted"),
    [
        (32, {"c"}),  # two pages: those of the request that is needed last
        (64, {"c", "b"}),
        (176, {"c", "b", "a"}),  # with the second of the two all of theirs
        (192, {"c", "b", "a"}),
        (208, set()),  # 13 pages; 2 + 2 + 8 are all there are
    ],
)
def test_requests_free_together_what_none_of_them_frees_alone(
    shared: World, model: PolynomialModel, tokens: int, retracted: set[str]
) -> None:
    shared.online("on", prompt=tokens)
    plan = planned(shared, model)
    assert set(plan.retracts) == retracted
    assert ("on" in {chunk.rid for chunk in plan.prefill}) == bool(retracted)


def test_requests_that_free_nothing_keep_their_place(shared: World, model: PolynomialModel) -> None:
    """c has no page of its own now: what it holds an online request holds too."""
    shared.roster.requests["c"].shared = (SharedPages(ONLINE_HEAD, 8, holders=2),)
    shared.online("on", prompt=160)
    assert set(planned(shared, model).retracts) == {"a", "b"}


def test_requests_whose_result_is_on_its_way_rest_together(
    shared: World, model: PolynomialModel
) -> None:
    for rid in "abc":
        shared.roster.requests[rid].in_flight = True
    shared.online("on", prompt=176)
    plan = planned(shared, model)
    assert (plan.retracts, set(plan.parks)) == ((), {"a", "b", "c"})
