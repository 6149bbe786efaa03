"""No project takes the whole room, one alone has half of it; flex takes what engines report."""

from __future__ import annotations

import pytest

from api.errors import NoFlexRoom, Overloaded
from engine_adapter.client.base import EngineFacts
from engine_adapter.client.pool import EnginePool, Member, Route
from gateway.prompts.rooms import FLOOR, FairRoom, FlexRoom
from tests.fakes.client import FakeEngine, FakeEngineClient, FakeSettings

SIZE = 1024


def fill(room: FairRoom, project: str) -> int:
    """Enter one call after the other until one is refused; how many there were."""
    number = 0
    while True:
        try:
            room.enter(project, 1)
        except Overloaded:
            return number
        number += 1


def test_one_alone_has_half() -> None:
    assert fill(FairRoom(SIZE), "a") == SIZE // 2


def test_whoever_comes_finds_room_however_many_have_filled_theirs() -> None:
    room = FairRoom(SIZE)
    for project in range(6):
        assert fill(room, f"p{project}") >= FLOOR, "each of them was let in"


def test_who_leaves_makes_room_at_once() -> None:
    room = FairRoom(SIZE)
    num_first, num_second = fill(room, "a"), fill(room, "b")
    assert num_second < num_first
    for n in range(num_first):
        assert not room.leave("a", 1), n
    assert fill(room, "b") + num_second == SIZE // 2


def test_all_of_a_small_room_can_be_used() -> None:
    room = FairRoom(4)
    with pytest.raises(Overloaded):
        room.enter("a", 5)
    assert fill(room, "a") == 4
    with pytest.raises(Overloaded):
        room.enter("b", 1)
    assert [room.leave("a", 1) for _ in range(4)] == [False, False, False, True]


def engine(url: str, flex_room: int | None) -> Member:
    client = FakeEngineClient(FakeEngine(FakeSettings(model="m")), url=url)
    return Member(client, facts=EngineFacts("m", 100, flex_room=flex_room), up=True)


def pool_of(*members: Member) -> EnginePool:
    pool = EnginePool([])
    pool.members = list(members)
    return pool


def test_an_engine_that_says_nothing_takes_what_comes() -> None:
    assert FlexRoom().has_room(engine("a", None), 1000)


def test_room_is_taken_and_given_back_between_two_reports() -> None:
    room, member = FlexRoom(), engine("a", 2)
    assert room.has_room(member, 2)
    room.enter(member, 2)
    assert not room.has_room(member, 1)
    room.leave(member, 1)
    assert room.has_room(member, 1)


def test_a_new_report_counts_what_is_in_flight_already() -> None:
    room, member = FlexRoom(), engine("a", 3)
    assert room.has_room(member, 3)
    room.enter(member, 3)
    # The engine sees our three and has room for one more.
    member.facts = EngineFacts("m", 100, flex_room=1)
    assert room.has_room(member, 1)
    assert not room.has_room(member, 2)
    room.leave(member, 3)
    assert room.has_room(member, 4)


def test_more_choices_than_ever_fit_are_taken_when_nothing_else_is_there() -> None:
    room, member = FlexRoom(), engine("a", 2)
    assert room.has_room(member, 5)
    room.enter(member, 1)
    assert not room.has_room(member, 5)
    assert not FlexRoom().has_room(engine("b", 0), 1)


def test_another_engine_with_room_is_taken() -> None:
    full, free, other_model = engine("a", 0), engine("b", 1), engine("c", 9)
    other_model.facts = EngineFacts("x", 100, flex_room=9)
    room, pool = FlexRoom(), pool_of(full, other_model, free)
    assert room.choose(pool, Route(full), "m", 1).member is free
    free.up = False
    with pytest.raises(NoFlexRoom) as refused:
        room.choose(pool, Route(full), "m", 1)
    assert (refused.value.status, refused.value.code) == (429, "resource_unavailable")
    assert refused.value.headers["retry-after"]
