from __future__ import annotations

import asyncio

import pytest

from engine_adapter.client.exchange import GivenUp, exchange


class Request:
    """A request that ends when it is told to, by itself or by an abort."""

    def __init__(self, *, answers_abort: bool = True) -> None:
        self.ended = asyncio.Event()
        self.answers_abort = answers_abort
        self.heard: list[str] = []
        self.num_drops = 0
        self.cancelled = False

    async def run(self, answer: str = "whole") -> str:
        try:
            await self.ended.wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        return "cut" if self.num_drops else answer

    async def drop(self) -> None:
        self.num_drops += 1
        if self.answers_abort:
            self.ended.set()

    async def note(self, answer: str) -> None:
        self.heard.append(answer)

    async def exchange(self, timeout_s: float = 5.0) -> str:
        answer = asyncio.ensure_future(self.run())
        return await exchange(answer, timeout_s=timeout_s, drop=self.drop, heard=self.note)


async def test_an_answer_in_time() -> None:
    request = Request()
    request.ended.set()
    assert await request.exchange() == "whole"
    assert (request.num_drops, request.heard) == (0, [])


async def test_a_cancelled_caller_leaves_after_the_last_word() -> None:
    request = Request()
    caller = asyncio.ensure_future(request.exchange())
    await asyncio.sleep(0.01)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert (request.num_drops, request.heard, request.cancelled) == (1, ["cut"], False)


async def test_a_request_that_takes_too_long_is_given_up_the_same_way() -> None:
    request = Request()
    with pytest.raises(GivenUp):
        await request.exchange(timeout_s=0.01)
    assert (request.num_drops, request.heard) == (1, ["cut"])


async def test_an_engine_without_a_last_word_is_not_waited_for_long() -> None:
    request = Request(answers_abort=False)
    with pytest.raises(GivenUp):
        await request.exchange(timeout_s=0.01)
    assert (request.heard, request.cancelled) == ([], True)


async def test_the_second_cancel_ends_at_once() -> None:
    request = Request(answers_abort=False)
    caller = asyncio.ensure_future(request.exchange())
    await asyncio.sleep(0.01)
    caller.cancel()
    await asyncio.sleep(0.01)
    caller.cancel()
    async with asyncio.timeout(0.2):
        with pytest.raises(asyncio.CancelledError):
            await caller
    assert request.cancelled


async def test_errors_come_as_they_are() -> None:
    async def fail() -> str:
        raise LookupError("x")

    request = Request()
    answer = asyncio.ensure_future(fail())
    with pytest.raises(LookupError):
        await exchange(answer, timeout_s=1, drop=request.drop, heard=request.note)
    assert request.num_drops == 0
