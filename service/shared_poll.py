"""One question of many askers, asked once for all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class SharedPoll(Generic[T]):
    """Answers each asker by a poll that began after it asked; one poll runs at a time.

    Many requests are aborted together, and each proof that one is gone is a poll at all of them.
    What nobody needs a key for is asked as often as strangers like.

    Args:
        poll: The question.
        every_s: A poll begins so long after the one before it began, however many ask.
    """

    def __init__(self, poll: Callable[[], Awaitable[T]], *, every_s: float = 0.0) -> None:
        self._poll = poll
        self._every_s = every_s
        self._next_at_s = 0.0
        self._running: asyncio.Future[T] | None = None
        self._next: asyncio.Future[T] | None = None

    async def __call__(self) -> T:
        """What the poll says; raises what it raises."""
        if self._next is None:
            self._next = asyncio.ensure_future(self._after(self._running))
            self._next.add_done_callback(_retrieve)
        # An asker that goes away does not end it for the others.
        return await asyncio.shield(self._next)

    async def joined(self) -> T:
        """The same, or what the poll under way says: it may hang, and nobody waits for two."""
        if self._running is not None and not self._running.done():
            return await asyncio.shield(self._running)
        return await self()

    async def _after(self, before: asyncio.Future[T] | None) -> T:
        if before is not None and not before.done():
            await asyncio.wait((before,))
        loop = asyncio.get_running_loop()
        if (early_s := self._next_at_s - loop.time()) > 0:
            await asyncio.sleep(early_s)
        self._next_at_s = loop.time() + self._every_s
        self._running, self._next = self._next, None
        return await self._poll()


def _retrieve(done: asyncio.Future[Any]) -> None:
    """Its error is its askers', and nobody's where all of them have gone."""
    if not done.cancelled():
        done.exception()
