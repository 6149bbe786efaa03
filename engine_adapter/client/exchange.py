"""An exchange with an engine that outlives its caller's interest.

An aborted request still gets an answer, and only that answer says how much was served of it. So
the exchange runs in a task of its own: when its caller is cancelled or the time is up, the request
is aborted and the answer awaited for a moment, for its usage alone (decision 0055).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, TypeVar

LAST_WORD_S: Final = 0.5
"""How long the answer to an aborted request may take to arrive once its slot is free."""

T = TypeVar("T")


class GivenUp(TimeoutError):
    """The time is up; the request was aborted already."""


async def exchange(
    work: Coroutine[Any, Any, T],
    *,
    timeout_s: float,
    drop: Callable[[], Awaitable[object]],
    heard: Callable[[T], Awaitable[None]],
) -> T:
    """The result of `work`.

    Args:
        work: Sends the request and reads the answer.
        timeout_s: It is given up after this long.
        drop: Aborts the request.
        heard: Called with the answer to an aborted request.

    Raises:
        GivenUp: The time is up.
        Exception: Whatever `work` raises.
        asyncio.CancelledError: The caller was cancelled; the request is aborted by then. Cancelled
            once more meanwhile, the exchange ends at once.
    """
    answer: T | Exception
    async with asyncio.TaskGroup() as group:
        task = group.create_task(_caught(work))
        try:
            # Unlike awaiting the task, this leaves it alone when it is itself cancelled.
            await asyncio.wait({task}, timeout=timeout_s)
        except asyncio.CancelledError:
            await _last_word(task, drop, heard)
            raise
        if task.done():
            answer = task.result()
        else:
            await _last_word(task, drop, heard)
            answer = GivenUp()
    if isinstance(answer, Exception):
        raise answer
    return answer


async def _last_word(
    task: asyncio.Task[T | Exception],
    drop: Callable[[], Awaitable[object]],
    heard: Callable[[T], Awaitable[None]],
) -> None:
    await drop()
    await asyncio.wait({task}, timeout=LAST_WORD_S)
    if not task.done():
        task.cancel()
        return
    answer = task.result()
    if not isinstance(answer, Exception):
        await heard(answer)


async def _caught(work: Coroutine[Any, Any, T]) -> T | Exception:
    """An error as a value: a task group would wrap it in a group."""
    try:
        return await work
    except Exception as error:  # noqa: BLE001 - it is raised again by `exchange`
        return error
