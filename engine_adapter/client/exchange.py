"""Keeps waiting for the engine's reply after the caller is cancelled, so that usage is complete.

An aborted request still gets a reply, and only that reply says how many tokens were served. So the
caller waits for a future that it does not own: when it is cancelled or the time is up, the request
is aborted, and the reply is awaited for half a second for its usage.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

LAST_WORD_S: Final = 0.5
"""How long the answer to an aborted request may take to arrive once its slot is free."""

T = TypeVar("T")


class GivenUp(TimeoutError):
    """The time is up; the request was aborted already."""


async def exchange(
    answer: asyncio.Future[T],
    *,
    timeout_s: float,
    drop: Callable[[], Awaitable[object]],
    heard: Callable[[T], Awaitable[None]],
) -> T:
    """The result of `answer`, which is done when this returns or raises, cancelled if need be.

    Args:
        answer: The answer to a request that was sent, or a task that sends it and reads the answer.
        timeout_s: It is given up after this long.
        drop: Aborts the request.
        heard: Called with the answer to an aborted request.

    Raises:
        GivenUp: The time is up.
        Exception: Whatever `answer` raises.
        asyncio.CancelledError: The caller was cancelled; the request is aborted by then. Cancelled
            once more meanwhile, the exchange ends at once.
    """
    try:
        await _settled(answer, timeout_s)
    except asyncio.CancelledError:
        await _last_word(answer, drop, heard)
        raise
    if not answer.done():
        await _last_word(answer, drop, heard)
        raise GivenUp
    return answer.result()


async def _settled(answer: asyncio.Future[Any], timeout_s: float) -> None:
    """Wait until it is done or the time is up; it is left alone, also when the waiter is cancelled.

    What `asyncio.wait` does for many at several times the price.
    """
    if answer.done():
        return
    loop = asyncio.get_running_loop()
    waiter = loop.create_future()

    def wake(_: object = None) -> None:
        if not waiter.done():
            waiter.set_result(None)

    timer = loop.call_later(timeout_s, wake)
    answer.add_done_callback(wake)
    try:
        await waiter
    finally:
        timer.cancel()
        answer.remove_done_callback(wake)


async def _last_word(
    answer: asyncio.Future[T],
    drop: Callable[[], Awaitable[object]],
    heard: Callable[[T], Awaitable[None]],
) -> None:
    try:
        await drop()
        await asyncio.wait((answer,), timeout=LAST_WORD_S)
    finally:
        if not answer.done():
            answer.cancel()
            await asyncio.wait((answer,))  # a task has something to close first
    if not answer.cancelled() and answer.exception() is None:
        await heard(answer.result())
