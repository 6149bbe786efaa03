"""An exchange with an engine that outlives its caller's interest.

An aborted request still gets an answer, and only that answer says how much was served of it. So
what is waited for is a future that its waiter does not own: when the caller is cancelled or the
time is up, the request is aborted and the answer awaited for a moment, for its usage alone
(decision 0055).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

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
        # Unlike awaiting the future, this leaves it alone when it is itself cancelled.
        await asyncio.wait((answer,), timeout=timeout_s)
    except asyncio.CancelledError:
        await _last_word(answer, drop, heard)
        raise
    if not answer.done():
        await _last_word(answer, drop, heard)
        raise GivenUp
    return answer.result()


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
