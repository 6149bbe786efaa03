"""A caller that goes away ends the work done for it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar, cast

from starlette.types import Receive

T = TypeVar("T")


class ClientGone(Exception):
    """The caller went away before the answer's end."""


async def while_connected(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """Do `work` unless the caller goes away; then it is cancelled, and its clean-up awaited.

    The request's body must have been read: the next message is the caller's going away. The work
    runs in the caller's task, beside one task that listens: a task more would cost every request
    two turns of the event loop.

    Raises:
        ClientGone: The caller went away.
    """
    task = cast("asyncio.Task[Any]", asyncio.current_task())
    gone = done = False

    async def listen() -> None:
        nonlocal gone
        while (await receive())["type"] != "http.disconnect":
            pass
        if not done:
            gone = True
            task.cancel()

    outcome: T | _Failed
    try:
        async with asyncio.TaskGroup() as group:
            listener = group.create_task(listen())
            outcome = await _caught(work)
            done = True
            listener.cancel()
    except asyncio.CancelledError:
        # Ours is taken back; one that came from elsewhere goes on.
        if gone and not task.uncancel():
            raise ClientGone from None
        raise
    if gone:
        # The work ended in spite of its cancellation: what it made counts.
        task.uncancel()
    if isinstance(outcome, _Failed):
        raise outcome.error
    return outcome


class _Failed:
    def __init__(self, error: Exception) -> None:
        self.error = error


async def _caught(work: Coroutine[Any, Any, T]) -> T | _Failed:
    """The result or the error as a value: a task group would wrap the error in a group."""
    try:
        return await work
    except Exception as error:  # noqa: BLE001 - it is raised again by `while_connected`
        return _Failed(error)
