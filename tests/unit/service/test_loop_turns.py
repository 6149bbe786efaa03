"""Turns of the event loop: how much of what is ready goes on in one of them, and whose."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from service.loop_turns import REQUEST, LoopTurns

STEPS = 4


class Loop:
    """Work that says when it went on, and the turns of the loop counted beside it."""

    def __init__(self, steps: int = STEPS) -> None:
        self.turns = LoopTurns(steps)
        self.went_on: list[tuple[int, str]] = []
        self._turn = 0

    async def work(self, owner: str, pieces: int = 1) -> None:
        for _ in range(pieces):
            if not self.turns.take(1):
                await self.turns.wait(owner, 1)
            self.went_on.append((self._turn, owner))
            await asyncio.sleep(0)

    async def run(self, tasks: Sequence[asyncio.Future[None]]) -> None:
        """Count turns until all tasks are done."""
        while not all(task.done() for task in tasks):
            await asyncio.sleep(0)
            self._turn += 1

    def most_in_a_turn(self) -> int:
        turns = [turn for turn, _ in self.went_on]
        return max(map(turns.count, turns))


async def test_a_turn_begins_so_many_and_all_come_to_their_end() -> None:
    loop = Loop()
    tasks = [asyncio.ensure_future(loop.work("a", 3)) for _ in range(64)]
    await loop.run(tasks)
    assert len(loop.went_on) == 3 * 64
    assert loop.most_in_a_turn() == STEPS


async def test_few_go_on_at_once() -> None:
    turns = LoopTurns(STEPS)
    for _ in range(3):
        assert [turns.take(1) for _ in range(STEPS + 1)] == [True] * STEPS + [False]
        await asyncio.sleep(0)
        await asyncio.sleep(0)


async def test_another_owner_is_next_whatever_one_has_waiting() -> None:
    loop = Loop()
    many = [asyncio.ensure_future(loop.work("a")) for _ in range(64)]
    await asyncio.sleep(0)
    one = asyncio.ensure_future(loop.work("b"))
    await loop.run([*many, one])
    order = [owner for _, owner in loop.went_on]
    assert order.index("b") <= 3 * STEPS


async def test_dear_pieces_are_fewer_in_a_turn() -> None:
    turns = LoopTurns(8)
    assert [turns.take(REQUEST) for _ in range(3)] == [True, True, False]
    waiting = [asyncio.ensure_future(turns.wait("a", REQUEST)) for _ in range(6)]
    done = [0]
    for _ in range(8):
        await asyncio.sleep(0)
        done.append(sum(one.done() for one in waiting))
    steps = [later - before for before, later in pairwise(done)]
    assert done[-1] == 6, done
    assert max(steps) == 2


async def test_who_is_cancelled_while_waiting_takes_no_turn() -> None:
    loop = Loop()
    tasks = [asyncio.ensure_future(loop.work("a")) for _ in range(20)]
    await asyncio.sleep(0)
    for task in tasks[STEPS:12]:
        task.cancel()
    await loop.run(tasks)
    assert len(loop.went_on) == 20 - (12 - STEPS)
    with suppress(asyncio.CancelledError):
        await asyncio.gather(*tasks)
    await asyncio.sleep(0)
    assert loop.turns.take(1)


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 4)), max_size=30), st.integers(1, 5)
)
def test_nobody_is_forgotten_and_no_turn_has_too_many(
    wanted: list[tuple[str, int]], steps: int
) -> None:
    async def run() -> None:
        loop = Loop(steps)
        await loop.run([asyncio.ensure_future(loop.work(*one)) for one in wanted])
        assert len(loop.went_on) == sum(pieces for _, pieces in wanted)
        assert not wanted or loop.most_in_a_turn() <= steps

    asyncio.run(run())
