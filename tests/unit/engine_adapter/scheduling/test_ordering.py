from __future__ import annotations

from typing import TYPE_CHECKING

from engine_adapter.scheduling.queue import OfflineOrder, flex_room, retracted_requests
from engine_adapter.scheduling.request import Phase, RequestClass, running_key

if TYPE_CHECKING:
    from tests.unit.engine_adapter.conftest import World


def ids(order: OfflineOrder, world: World) -> list[str]:
    return [request.rid for request in order.waiting(world.snapshot())]


def test_flex_then_retracted_then_deadline_then_arrival(world: World) -> None:
    world.offline("late", deadline_at_s=9.0)
    world.offline("soon2", deadline_at_s=5.0)
    world.offline("soon1", deadline_at_s=5.0)
    world.offline("back", phase=Phase.RETRACTED, deadline_at_s=99.0)
    world.add("flex", RequestClass.FLEX, deadline_at_s=99.0)
    assert ids(OfflineOrder(0.0), world) == ["flex", "back", "soon2", "soon1", "late"]


def test_the_batch_served_least_gets_its_share(world: World) -> None:
    """Batch a is due first and has requests without end; every 4th admission goes to b all the
    same."""
    for i in range(20):
        world.offline(f"a{i}", batch_id="a", deadline_at_s=1.0)
        world.offline(f"b{i}", batch_id="b", deadline_at_s=9.0)
    order = OfflineOrder(0.25)
    admitted = ""
    for _ in range(12):
        request = next(order.waiting(world.snapshot()))
        order.admitted(request)
        world.roster.start(request.rid)
        admitted += request.batch_id
    assert admitted == "aaabaaabaaab"


def test_its_share_does_not_depend_on_how_many_a_step_admits(world: World) -> None:
    """All 48 slots become free at once, wave after wave: there is one request of b."""
    for i in range(48):
        world.offline(f"a{i}", batch_id="a", deadline_at_s=1.0)
    world.offline("b", batch_id="b", deadline_at_s=9.0)
    order = OfflineOrder(0.5)
    admitted = ""
    for request in order.waiting(world.snapshot()):
        order.admitted(request)
        admitted += request.batch_id
    assert admitted == "ab" + 47 * "a"


def test_requests_of_a_batch_keep_their_order(world: World) -> None:
    for i in range(5):
        world.offline(f"r{i}", batch_id="a")
    assert ids(OfflineOrder(0.1), world) == [f"r{i}" for i in range(5)]


def test_online_requests_rank_by_arrival_whatever_their_deadline(world: World) -> None:
    first = world.online("first", deadline_at_s=9.0)
    second = world.online("second", deadline_at_s=1.0)
    offline = world.offline("off", deadline_at_s=0.0)
    assert running_key(first) < running_key(second) < running_key(offline)


def test_flex_room_shrinks_with_flex_slots(world: World) -> None:
    world.have(total_slots=10, reserved_slots=2)
    assert flex_room(world.snapshot(), 0.5) == 4
    for i in range(5):
        world.add(f"f{i}", RequestClass.FLEX, phase=Phase.DECODE)
    assert flex_room(world.snapshot(), 0.5) == 0


def test_old_batches_are_forgotten(world: World) -> None:
    order = OfflineOrder(0.1)
    for i in range(1000):
        order.admitted(world.offline(f"r{i}", batch_id=f"b{i}"))
    assert len(order._last_admitted) <= 256
    assert "b999" in order._last_admitted


def test_retracted_requests_are_found_without_a_search(world: World) -> None:
    for i in range(5):
        world.offline(f"w{i}")
        world.add(f"fw{i}", RequestClass.FLEX)
    world.offline("r", phase=Phase.RETRACTED, deadline_at_s=9.0)
    world.add("fr", RequestClass.FLEX, phase=Phase.RETRACTED)
    found = retracted_requests(world.snapshot().offline_waiting)
    assert [request.rid for request in found] == ["fr", "r"]
