from __future__ import annotations

import asyncio

import pytest
from starlette.types import Message

from gateway.disconnect import ClientGone, while_connected


class Caller:
    """A caller that can hang up."""

    def __init__(self) -> None:
        self._gone = asyncio.Event()

    def hang_up(self) -> None:
        self._gone.set()

    async def receive(self) -> Message:
        await self._gone.wait()
        return {"type": "http.disconnect"}


async def test_the_result_of_work_that_ends() -> None:
    async def work() -> int:
        await asyncio.sleep(0)
        return 42

    assert await while_connected(Caller().receive, work()) == 42


async def test_an_error_comes_out_as_it_is() -> None:
    async def work() -> int:
        raise LookupError("no")

    with pytest.raises(LookupError, match="no"):
        await while_connected(Caller().receive, work())


async def test_work_is_cancelled_and_cleaned_up_when_the_caller_goes() -> None:
    caller, steps = Caller(), []

    async def work() -> None:
        try:
            steps.append("started")
            caller.hang_up()
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.01)
            steps.append("cleaned up")

    with pytest.raises(ClientGone):
        await while_connected(caller.receive, work())
    assert steps == ["started", "cleaned up"]


async def test_being_cancelled_ourselves_is_not_the_caller_going() -> None:
    async def work() -> None:
        await asyncio.sleep(60)

    task = asyncio.ensure_future(while_connected(Caller().receive, work()))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
