"""Projects take turns in line, places are told, and nobody passes who may not wait."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack

import pytest

from api.errors import NoFlexRoom
from gateway.prompts.flex_line import EXPECTED, PLACE, FlexLine, Waiting


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


async def served(line: FlexLine, me: Waiting) -> None:
    await line.room(me, lambda: None)


async def in_order(line: FlexLine, projects: str) -> str:
    """Everybody stands in line, then room comes for one after the other."""
    room, order = asyncio.Semaphore(0), []

    def look() -> None:
        if room.locked():
            raise NoFlexRoom("none")
        room._value -= 1

    async def one(project: str) -> None:
        with line.standing(project) as me:
            await line.room(me, look)
            order.append(project)

    async with asyncio.TaskGroup() as group:
        for project in projects:
            group.create_task(one(project))
            await asyncio.sleep(0)
        for _ in projects:
            room.release()
    return "".join(order)


@pytest.mark.parametrize(
    ("came", "order"),
    [("aaa", "aaa"), ("aaab", "abaa"), ("aaabbc", "abcaba"), ("abab", "abab")],
)
async def test_projects_take_turns(came: str, order: str) -> None:
    assert await in_order(FlexLine(), came) == order


async def test_who_comes_again_at_once_does_not_pass_others() -> None:
    line = FlexLine()
    with ExitStack() as stack:
        mine = stack.enter_context(line.standing("a"))
        others = [stack.enter_context(line.standing("b")) for _ in range(3)]
        assert [line.place(one) for one in (mine, *others)] == [1, 2, 3, 4]
        await served(line, mine)
        stack.callback(lambda: None)
        again = stack.enter_context(line.standing("a"))
        # One that is served leaves; here it still stands, which only shifts the places.
        assert line.place(others[0]) < line.place(again) < line.place(others[2])


async def test_the_expected_wait_follows_those_that_found_room() -> None:
    clock = Clock()
    line = FlexLine(clock)
    with line.standing("a") as first:
        assert line.told(1) == {PLACE: "1"}
        clock.now_s = 6.0
        await served(line, first)
        with line.standing("b") as second:
            assert line.told(line.place(second)) == {PLACE: "2", EXPECTED: "12"}
            assert line.comment(second) == b": waiting for spare capacity, place 2, about 12 s\n\n"
            assert line.refusal() == {PLACE: "3", EXPECTED: "18", "retry-after": "18"}
            clock.now_s = 600.0
            assert line.refusal()["retry-after"] == "120"
    with line.standing("c"):
        assert line.told(1) == {PLACE: "1"}, "what an earlier line took says nothing"


async def test_many_that_found_room_count_by_the_last_of_them() -> None:
    clock = Clock()
    line = FlexLine(clock)
    with line.standing("z"):
        for number in range(40):
            clock.now_s += 100.0 if number < 20 else 3.0
            with line.standing("a") as me:
                me.is_first.set()
                await served(line, me)
        assert line.expected_s(2) == pytest.approx(6.0)
