"""Places by turns of their owners."""

from __future__ import annotations

import asyncio

import pytest

from service.turns import TooManyWait, Turns


class _Room:
    """Blocks that end when they are told to."""

    def __init__(self, turns: Turns) -> None:
        self.turns = turns
        self.began: list[str] = []
        self.ends: dict[str, asyncio.Event] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def ask(self, owner: str, name: str) -> None:
        async def run() -> None:
            async with self.turns.place(owner):
                self.began.append(name)
                await self.ends[name].wait()

        self.ends[name] = asyncio.Event()
        self.tasks[name] = asyncio.ensure_future(run())
        await self.settle()

    async def end(self, name: str) -> None:
        self.ends[name].set()
        await self.tasks[name]
        await self.settle()

    async def settle(self) -> None:
        for _ in range(5):
            await asyncio.sleep(0)


async def test_owners_take_turns_however_many_of_one_wait() -> None:
    room = _Room(Turns(1, max_waiting=8))
    for name in ("a1", "a2", "a3", "b1", "c1", "b2"):
        await room.ask(name[0], name)
    for name in ("a1", "a2", "b1", "c1", "a3"):
        assert room.began[-1] == name
        await room.end(name)
    await room.end("b2")
    assert room.began == ["a1", "a2", "b1", "c1", "a3", "b2"]


async def test_an_owner_has_a_limit_of_its_own() -> None:
    room = _Room(Turns(1, max_waiting=2))
    for name in ("a1", "a2", "a3"):
        await room.ask("a", name)
    with pytest.raises(TooManyWait):
        async with room.turns.place("a"):
            pass
    await room.ask("b", "b1")
    for name in ("a1", "a2", "b1", "a3"):
        await room.end(name)
    assert sorted(room.began) == ["a1", "a2", "a3", "b1"]


async def test_all_places_are_used_and_come_back() -> None:
    room = _Room(Turns(2, max_waiting=8))
    for name in ("a1", "a2", "a3"):
        await room.ask("a", name)
    assert room.began == ["a1", "a2"]
    for name in ("a1", "a2", "a3"):
        await room.end(name)
    for name in ("a4", "a5", "a6"):
        await room.ask("a", name)
    assert room.began[3:] == ["a4", "a5"]
    for name in ("a4", "a5", "a6"):
        await room.end(name)


@pytest.mark.parametrize("given", [False, True])
async def test_who_gives_up_costs_no_place(given: bool) -> None:
    room = _Room(Turns(1, max_waiting=8))
    for name in ("a1", "a2", "b1"):
        await room.ask(name[0], name)
    if given:  # its turn comes in the moment in which it gives up
        room.ends["a1"].set()
        await room.tasks["a1"]
    room.tasks["a2"].cancel()
    await asyncio.gather(room.tasks["a2"], return_exceptions=True)
    await room.settle()
    if not given:
        await room.end("a1")
    assert room.began[-1] == "b1"
    await room.end("b1")
    async with room.turns.place("c"):
        pass


async def test_an_owner_leaves_room_for_the_next() -> None:
    room = _Room(Turns(8, max_waiting=8, leaves_room=True))
    for number in range(6):
        await room.ask("a", f"a{number}")
    assert room.began == ["a0", "a1", "a2", "a3"]
    for name in ("b0", "c0", "d0"):
        await room.ask(name[0], name)
    assert room.began[4:] == ["b0", "c0", "d0"]
    for name in ("b0", "c0", "d0"):
        await room.end(name)
    await room.end("a0")
    assert room.began[7:] == ["a4"]
    for number in range(1, 6):
        await room.end(f"a{number}")
    for owner in "abcdefgh":
        await room.ask(owner, f"{owner}9")
    assert [name for name in room.began if name.endswith("9")] == [f"{o}9" for o in "abcdefgh"]
    for owner in "abcdefgh":
        await room.end(f"{owner}9")
