from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from service.shared_poll import SharedPoll


async def test_askers_share_a_look_that_began_after_they_asked() -> None:
    gates = [asyncio.Event() for _ in range(3)]
    begun: list[int] = []

    async def poll() -> int:
        number = len(begun)
        begun.append(number)
        await gates[number].wait()
        return number

    shared = SharedPoll(poll)
    first = asyncio.ensure_future(shared())
    while not begun:
        await asyncio.sleep(0)
    late = [asyncio.ensure_future(shared()) for _ in range(5)]
    late[0].cancel()
    await asyncio.sleep(0)
    assert begun == [0], "one poll at a time"
    for gate in gates:
        gate.set()
    assert await first == 0
    assert await asyncio.gather(*late[1:]) == [1] * 4
    assert await shared() == 2


async def test_everybody_gets_the_error() -> None:
    async def poll() -> None:
        raise OSError("away")

    shared = SharedPoll(poll)
    for _ in range(2):
        with pytest.raises(OSError, match="away"):
            await shared()


async def test_however_many_ask_looks_are_apart() -> None:
    began_s: list[float] = []
    loop = asyncio.get_running_loop()

    async def poll() -> int:
        began_s.append(loop.time())
        return len(began_s)

    shared = SharedPoll(poll, every_s=0.05)
    assert await shared() == 1
    assert await asyncio.gather(*(shared() for _ in range(100))) == [2] * 100
    await asyncio.gather(*(shared() for _ in range(100)))
    assert len(began_s) == 3
    assert all(late - early >= 0.05 for early, late in pairwise(began_s))


async def test_who_does_not_wait_for_two_joins_the_one_under_way() -> None:
    gate, num_begun = asyncio.Event(), 0

    async def poll() -> int:
        nonlocal num_begun
        num_begun += 1
        await gate.wait()
        return num_begun

    shared = SharedPoll(poll)
    first = asyncio.ensure_future(shared.joined())
    while not num_begun:
        await asyncio.sleep(0)
    joined = asyncio.ensure_future(shared.joined())
    await asyncio.sleep(0)
    gate.set()
    assert [await first, await joined] == [1, 1]
    assert await shared.joined() == 2
