from __future__ import annotations

import pytest

from api.errors import NoFlexRoom
from engine_adapter.client.base import EngineFacts
from engine_adapter.client.fake import FakeEngine, FakeEngineClient, FakeSettings
from engine_adapter.client.pool import EnginePool, Member
from gateway.prompts.flex_room import FlexRoom


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


def test_another_engine_with_room_is_taken() -> None:
    full, free, other_model = engine("a", 0), engine("b", 1), engine("c", 9)
    other_model.facts = EngineFacts("x", 100, flex_room=9)
    room, pool = FlexRoom(), pool_of(full, other_model, free)
    assert room.choose(pool, full, "m", 1) is free
    free.up = False
    with pytest.raises(NoFlexRoom) as refused:
        room.choose(pool, full, "m", 1)
    assert (refused.value.status, refused.value.code) == (429, "resource_unavailable")
    assert refused.value.headers["retry-after"]
