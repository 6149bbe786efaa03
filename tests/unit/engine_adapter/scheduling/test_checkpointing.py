from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from engine_adapter.scheduling.builder import PlanBuilder
from engine_adapter.scheduling.latency import PolynomialModel
from engine_adapter.scheduling.memory import order_checkpoints
from engine_adapter.scheduling.plan import Checkpoint
from engine_adapter.scheduling.policies.settings import PolicySettings
from engine_adapter.scheduling.queue import RequestsByPhase
from engine_adapter.scheduling.request import Phase

if TYPE_CHECKING:
    from tests.unit.engine_adapter.conftest import World


def copies(
    world: World,
    model: PolynomialModel,
    settings: PolicySettings | None = None,
    *,
    for_slots: bool = False,
) -> tuple[Checkpoint, ...]:
    snapshot = world.snapshot()
    builder = PlanBuilder(snapshot, model)
    requests = RequestsByPhase.of(snapshot)
    settings = settings or PolicySettings()
    order_checkpoints(builder, requests.offline, requests.online, settings, for_slots=for_slots)
    return builder.build(0.0).checkpoints


def four_requests(world: World) -> None:
    for i in range(4):
        world.offline(f"off{i}", phase=Phase.DECODE, prompt=50)  # 3 completed pages


@pytest.mark.parametrize(
    ("free_pages", "requests_covered"), [(500, 0), (450, 1), (375, 2), (300, 4), (0, 4)]
)
def test_more_requests_are_covered_the_less_is_free(
    world: World, model: PolynomialModel, free_pages: int, requests_covered: int
) -> None:
    """Of 1000 pages: nothing at half free, all requests at a quarter."""
    four_requests(world)
    world.have(free_pages=free_pages)
    assert len(copies(world, model)) == requests_covered


@pytest.mark.parametrize(
    ("free_slots", "requests_covered"), [(10, 0), (9, 1), (7, 3), (5, 4), (0, 4)]
)
def test_slots_count_as_memory_does(
    free_slots: int, requests_covered: int, world: World, model: PolynomialModel
) -> None:
    """Of 20 slots, with all KV free but what four requests hold; chat is not copied."""
    four_requests(world)
    world.online("on", phase=Phase.DECODE, prompt=50)
    world.have(free_pages=900, total_slots=20, free_slots=free_slots)
    found = copies(world, model, for_slots=True)
    assert len(found) == requests_covered
    assert "on" not in {copy.rid for copy in found}
    assert copies(world, model) == ()


def test_the_request_that_goes_first_is_copied_first(world: World, model: PolynomialModel) -> None:
    four_requests(world)
    world.have(free_pages=450)
    assert copies(world, model) == (Checkpoint("off3", 0, 3),)


def test_only_new_complete_pages_are_copied(world: World, model: PolynomialModel) -> None:
    world.offline("a", phase=Phase.DECODE, prompt=95, host_pages=2, host_pages_pending=1)
    world.have(free_pages=0)
    assert copies(world, model) == (Checkpoint("a", 3, 2),)


def test_the_interconnect_and_the_host_pool_are_bounds(
    world: World, model: PolynomialModel
) -> None:
    four_requests(world)
    world.have(free_pages=0, copy_pages_per_step=4)
    assert [c.num_pages for c in copies(world, model)] == [3, 1]
    world.have(copy_pages_per_step=100, host_free_pages=5)
    assert [c.num_pages for c in copies(world, model)] == [3, 2]
    world.have(host_free_pages=0)
    assert copies(world, model) == ()


def test_online_requests_are_copied_only_when_memory_is_nearly_gone(
    world: World, model: PolynomialModel
) -> None:
    world.online("on", phase=Phase.DECODE, prompt=50)
    world.have(free_pages=101)
    assert copies(world, model) == ()
    world.have(free_pages=99)
    assert copies(world, model) == (Checkpoint("on", 0, 3),)


def test_a_threshold_of_zero_turns_it_off(world: World, model: PolynomialModel) -> None:
    four_requests(world)
    world.have(free_pages=0)
    assert copies(world, model, PolicySettings(checkpoint_free_share=0.0)) == ()
