"""A caller that goes away ends the work done for it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.types import Receive

T = TypeVar("T")


class ClientGone(Exception):
    """The caller went away before the answer's end."""


async def while_connected(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """Do `work` unless the caller goes away; then it is cancelled, and its clean-up awaited.

    The request's body must have been read: the next message is the caller's going away.

    Raises:
        ClientGone: The caller went away.
    """
    gone = False

    async def watch(task: asyncio.Task[T | _Failed]) -> None:
        nonlocal gone
        while (await receive())["type"] != "http.disconnect":
            pass
        if not task.done():
            gone = True
            task.cancel()

    async with asyncio.TaskGroup() as group:
        task = group.create_task(_caught(work))
        watcher = group.create_task(watch(task))
        task.add_done_callback(lambda _: watcher.cancel())
    if gone and task.cancelled():
        raise ClientGone
    result = task.result()
    if isinstance(result, _Failed):
        raise result.error
    return result


class _Failed:
    def __init__(self, error: Exception) -> None:
        self.error = error


async def _caught(work: Coroutine[Any, Any, T]) -> T | _Failed:
    """The result or the error as a value: a task group would wrap the error in a group."""
    try:
        return await work
    except Exception as error:  # noqa: BLE001 - it is raised again by `while_connected`
        return _Failed(error)
