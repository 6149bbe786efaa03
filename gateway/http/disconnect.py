"""A caller that goes away ends the work done for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar, cast

from starlette.types import Receive, Scope

T = TypeVar("T")
WhenGone = Callable[[Callable[[], None] | None], None]
"""Sets what a connection calls when it is gone, at once if it is already; or nothing any more."""

WHEN_GONE: Final = "when_gone"
"""Its name in a scope's state."""


class ClientGone(Exception):
    """The client disconnected before the answer was complete."""


def when_gone_of(scope: Scope) -> WhenGone | None:
    """The hook that fires when the client disconnects, or None under another ASGI server."""
    found: WhenGone | None = scope["state"].get(WHEN_GONE)
    return found


async def while_connected(
    receive: Receive, work: Coroutine[Any, Any, T], when_gone: WhenGone | None = None
) -> T:
    """Do `work`; if the client disconnects, cancel it and wait for its clean-up.

    The request's body must have been read: the next message is the caller's going away. The work
    runs in the caller's task. Our own connections say by themselves that they are gone; with any
    other server, one more task listens.

    Args:
        receive: The server's.
        work: What is done.
        when_gone: The connection's, if it is ours (`when_gone_of`).

    Raises:
        ClientGone: The caller went away.
    """
    task = cast("asyncio.Task[Any]", asyncio.current_task())
    begun = gone = done = False

    def end() -> None:
        nonlocal gone
        if not done and not gone:
            gone = True
            if begun:
                task.cancel()

    listener = None
    if when_gone is None:
        listener = asyncio.get_running_loop().create_task(_listen(receive, end))
    else:
        when_gone(end)
        if gone:
            work.close()
            raise ClientGone
    begun = True
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
        if listener is not None:
            listener.cancel()
        elif when_gone is not None:
            when_gone(None)
        if gone:
            # The work ended in spite of its cancellation: what it made counts.
            task.uncancel()


async def _listen(receive: Receive, then: Callable[[], None]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    then()
