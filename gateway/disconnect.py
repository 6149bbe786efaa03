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
    two turns of the event loop, and so would waiting for the listener's end.

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

    listener = asyncio.get_running_loop().create_task(listen())
    try:
        return await work
    except asyncio.CancelledError:
        # Ours is taken back; one that came from elsewhere goes on.
        if gone:
            gone = False
            if not task.uncancel():
                raise ClientGone from None
        raise
    finally:
        done = True
        listener.cancel()
        if gone:
            # The work ended in spite of its cancellation: what it made counts.
            task.uncancel()
