"""One question of many askers, asked once for all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class SharedPoll(Generic[T]):
    """Answers each asker by a poll that began after it asked; one poll runs at a time.

    Many requests are aborted together, and each proof that one is gone is a poll at all of them.
    """

    def __init__(self, poll: Callable[[], Awaitable[T]]) -> None:
        self._poll = poll
        self._running: asyncio.Future[Any] | None = None
        self._next: asyncio.Future[T] | None = None

    async def __call__(self) -> T:
        """What the poll says; raises what it raises."""
        if self._next is None:
            self._next = asyncio.ensure_future(self._after(self._running))
            self._next.add_done_callback(_retrieve)
        # An asker that goes away does not end it for the others.
        return await asyncio.shield(self._next)

    async def _after(self, before: asyncio.Future[Any] | None) -> T:
        if before is not None and not before.done():
            await asyncio.wait((before,))
        self._running, self._next = self._next, None
        return await self._poll()


def _retrieve(done: asyncio.Future[Any]) -> None:
    """Its error is its askers', and nobody's where all of them have gone."""
    if not done.cancelled():
        done.exception()
