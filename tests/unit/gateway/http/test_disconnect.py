from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from starlette.types import Message

from gateway.http.disconnect import ClientGone, while_connected


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


class Connection:
    """One of ours: it says by a call that its caller has hung up."""

    def __init__(self, *, gone: bool = False) -> None:
        self.gone = gone
        self.told: Callable[[], None] | None = None

    def when_gone(self, then: Callable[[], None] | None) -> None:
        self.told = then
        if self.gone and then is not None:
            then()

    def hang_up(self) -> None:
        self.gone = True
        assert self.told is not None
        self.told()


async def never() -> Message:
    raise AssertionError("nobody listens where the connection speaks")


async def test_a_connection_of_ours_says_it_without_a_task() -> None:
    connection, steps = Connection(), []
    tasks = asyncio.all_tasks()

    async def work() -> None:
        try:
            steps.append("started")
            assert asyncio.all_tasks() == tasks
            asyncio.get_running_loop().call_soon(connection.hang_up)
            await asyncio.sleep(60)
        finally:
            steps.append("cleaned up")

    with pytest.raises(ClientGone):
        await while_connected(never, work(), connection.when_gone)
    assert steps == ["started", "cleaned up"]
    assert connection.told is None


async def test_a_connection_that_was_gone_before() -> None:
    async def work() -> None:
        raise AssertionError("not begun")

    with pytest.raises(ClientGone):
        await while_connected(never, work(), Connection(gone=True).when_gone)
    await asyncio.sleep(0)  # no cancellation is left behind


async def test_a_result_counts_though_the_connection_has_gone() -> None:
    connection = Connection()

    async def work() -> int:
        asyncio.get_running_loop().call_soon(connection.hang_up)
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return 42
        return 0

    assert await while_connected(never, work(), connection.when_gone) == 42
    await asyncio.sleep(0)  # no cancellation is left behind
