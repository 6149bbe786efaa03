"""No project takes the whole room; one alone has half of it."""

from __future__ import annotations

import pytest

from api.errors import Overloaded, RateLimited
from gateway.prompts.fair_room import FLOOR, FairRoom

SIZE = 1024


def fill(room: FairRoom, project: str) -> int:
    """Enter one call after the other until one is refused; how many there were."""
    number = 0
    while True:
        try:
            room.check(project, 1, None)
        except Overloaded:
            return number
        room.enter(project, 1)
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
    room.check("a", 4, None)
    with pytest.raises(Overloaded):
        room.check("a", 5, None)
    assert fill(room, "a") == 4
    with pytest.raises(Overloaded):
        room.check("b", 1, None)
    assert [room.leave("a", 1) for _ in range(4)] == [False, False, False, True]


def test_requests_in_flight_have_a_limit_of_their_own() -> None:
    room = FairRoom(SIZE)
    room.check("a", 8, 1)
    room.enter("a", 8)
    with pytest.raises(RateLimited):
        room.check("a", 1, 1)
    room.check("b", 1, 1)
    room.leave("a", 8)
    room.check("a", 1, 1)
    with pytest.raises(RateLimited):
        room.check("a", 1, 0)
