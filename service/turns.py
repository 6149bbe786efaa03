"""Places that several owners want at once: whoever waits is served by turns of the owners.

    owner A   w w w w w        the next free place is A's first, then B's, then A's second …
    owner B   w

However many of an owner wait, another's first one waits for no more than what runs now and one
place for each owner beside it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class TooManyWait(Exception):
    """The owner has as many waiting as it may."""


class Turns:
    """A number of places.

    Invariant: somebody waits only while every place is taken, and an owner without one that waits
    has no queue.

    Args:
        num_places: How many have one at once.
        max_waiting: How many of one owner may wait.
    """

    def __init__(self, num_places: int, *, max_waiting: int) -> None:
        self._num_free = num_places
        self._max_waiting = max_waiting
        self._queues: dict[str, deque[asyncio.Future[None]]] = {}

    @asynccontextmanager
    async def place(self, owner: str) -> AsyncIterator[None]:
        """A place for as long as the block runs.

        Raises:
            TooManyWait: As many of the owner wait as may.
        """
        if self._num_free:
            self._num_free -= 1
        else:
            await self._wait(owner)
        try:
            yield
        finally:
            self._pass_on()

    async def _wait(self, owner: str) -> None:
        queue = self._queues.get(owner, deque())
        if len(queue) >= self._max_waiting:
            raise TooManyWait
        mine = asyncio.get_running_loop().create_future()
        queue.append(mine)
        self._queues[owner] = queue
        try:
            await mine
        except asyncio.CancelledError:
            if mine.done() and not mine.cancelled():
                self._pass_on()  # it was given a place in the same moment
            else:
                self._forget(owner, mine)
            raise

    def _forget(self, owner: str, gone: asyncio.Future[None]) -> None:
        queue = self._queues[owner]
        queue.remove(gone)
        if not queue:
            del self._queues[owner]

    def _pass_on(self) -> None:
        """Give a place to the owner whose turn it is, which has its next turn after all others."""
        if not self._queues:
            self._num_free += 1
            return
        owner = next(iter(self._queues))
        queue = self._queues.pop(owner)
        queue.popleft().set_result(None)
        if queue:
            self._queues[owner] = queue
