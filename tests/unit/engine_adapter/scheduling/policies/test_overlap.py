"""Plans over many steps of an overlap loop: a result is processed after the next step's launch.

Every request that ran has a result on its way, so nothing can be taken from it before it rested.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from engine_adapter.scheduling.driver import Driver
from engine_adapter.scheduling.latency import Coefficients, PolynomialModel
from engine_adapter.scheduling.plan import StepPlan
from engine_adapter.scheduling.policies.registry import create_policy
from engine_adapter.scheduling.request import Phase

if TYPE_CHECKING:
    from tests.unit.engine_adapter.conftest import World

DECODE = Phase.DECODE
# A hundred requests fit the TBT target: nothing but pages keeps a request out of a step.
FAST = Coefficients(
    k_token=0.0001, k_attention=0.0, k_context=0.0, k_square=0.0, k_request=0.0, k_constant=0.010
)
POLICIES = ["conserve_v1", "conserve_v2"]


def fast() -> PolynomialModel:
    return PolynomialModel(FAST, FAST, FAST)


class Loop:
    """Decode requests of a world, one step behind; pages are counted, one token each."""

    def __init__(self, name: str, world: World) -> None:
        self.world = world
        self.driver = Driver(create_policy(name, fast()))

    def step(self) -> StepPlan:
        """Plan a step, carry it out, and process the result of the one before."""
        world = self.world
        plan = self.driver.begin(world.snapshot()).plan
        requests = world.roster.requests
        for rid in plan.retracts:
            world.have(free_pages=world.resources.free_pages + requests[rid].device_pages)
            world.roster.retract(rid)
            requests[rid].device_pages = requests[rid].computed_tokens = 0
        for rid in plan.decode:
            requests[rid].computed_tokens += 1
            requests[rid].device_pages += 1
        world.have(free_pages=world.resources.free_pages - len(plan.decode))
        for request in requests.values():
            request.in_flight = request.rid in plan.decode
        return plan


def decoding(world: World, kind: str, num: int, tokens: int) -> None:
    add = world.online if kind == "online" else world.offline
    for n in range(num):
        add(f"{kind}-{n}", prompt=tokens, phase=DECODE, in_flight=True)


@pytest.mark.parametrize("name", POLICIES)
def test_room_asked_for_once_is_there_in_the_next_step(name: str, world: World) -> None:
    """What requests rest for is not taken by the requests that go on."""
    world.have(page_tokens=1, total_pages=20_000, free_pages=3000, total_slots=256, free_slots=256)
    world.have(host_total_pages=4000, host_free_pages=4000, copy_pages_per_step=4000)
    decoding(world, "online", 4, 60)
    decoding(world, "offline", 100, 60)
    world.online("back", phase=Phase.RETRACTED, prompt=4000, host_pages=250, host_tokens=4000)
    loop = Loop(name, world)
    first, second = loop.step(), loop.step()
    assert first.restores == ()
    assert second.retracts
    assert [order.rid for order in second.restores] == ["back"]


def test_requests_rest_for_what_is_missing_and_not_one_for_each_request(world: World) -> None:
    world.have(page_tokens=16, total_pages=1000, free_pages=0, total_slots=256, free_slots=256)
    decoding(world, "online", 20, 160)
    decoding(world, "offline", 20, 165)
    plan = Loop("conserve_v1", world).step()
    # Each online request lacks a page, and offline requests have eleven each and room in the last
    # one.
    assert len([rid for rid in plan.parks if rid.startswith("offline")]) == 2
    assert len(plan.decode) == 18


@pytest.mark.parametrize("name", POLICIES)
def test_online_requests_never_wait_for_a_page(name: str, world: World) -> None:
    world.have(page_tokens=1, total_pages=8000, free_pages=600, total_slots=256, free_slots=256)
    decoding(world, "online", 20, 60)
    decoding(world, "offline", 40, 100)
    loop = Loop(name, world)
    retracts, left_out = 0, 0
    for _ in range(100):
        plan = loop.step()
        retracts += len(plan.retracts)
        left_out += 20 - sum(rid.startswith("online") for rid in plan.decode)
    assert retracts > 5, "pages were short, or nothing was shown"
    assert left_out == 0
