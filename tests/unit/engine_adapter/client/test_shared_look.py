from __future__ import annotations

import asyncio

import pytest

from engine_adapter.client.shared_look import SharedPoll


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
