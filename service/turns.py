"""Places that several owners want at once: whoever waits is served by turns of the owners.

    owner A   w w w w w        the next free place is A's first, then B's, then A's second …
    owner B   w

However many of an owner wait, another's first one waits for no more than what runs now and one
place for each owner beside it.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from math import inf


class TooManyWait(Exception):
    """The owner has as many waiting as it may."""


class Turns:
    """A number of places.

    Invariant: an owner's waits only while it may not have a place, and an owner without one that
    waits has no queue.

    Args:
        num_places: How many have one at once.
        max_waiting: How many of one owner may wait.
        leaves_room: An owner may have as many as are free, and one in any case: one alone comes to
            half of them, two to a third each, and there is some left for the next.
    """

    def __init__(self, num_places: int, *, max_waiting: int, leaves_room: bool = False) -> None:
        self._num_free = num_places
        self._leaves_room = leaves_room
        self._held: Counter[str] = Counter()
        self._max_waiting = max_waiting
        self._queues: dict[str, deque[asyncio.Future[None]]] = {}

    @asynccontextmanager
    async def place(self, owner: str) -> AsyncIterator[None]:
        """A place for as long as the block runs.

        Raises:
            TooManyWait: As many of the owner wait as may.
        """
        if self._may_have(owner):
            self._take(owner)
        else:
            await self._wait(owner)
        try:
            yield
        finally:
            self._leave(owner)

    def _may_have(self, owner: str) -> bool:
        most = max(1, self._num_free) if self._leaves_room else inf
        return self._num_free > 0 and self._held.get(owner, 0) < most

    def _take(self, owner: str) -> None:
        self._num_free -= 1
        self._held[owner] += 1

    def _leave(self, owner: str) -> None:
        """Give a place back, and all that are free to those whose turn it is."""
        self._num_free += 1
        self._held[owner] -= 1
        if not self._held[owner]:
            del self._held[owner]
        while (first := next(filter(self._may_have, self._queues), None)) is not None:
            queue = self._queues.pop(first)
            queue.popleft().set_result(None)
            self._take(first)
            if queue:
                self._queues[first] = queue  # its next turn comes after all others'

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
                self._leave(owner)  # it was given a place in the same moment
            else:
                self._forget(owner, mine)
            raise

    def _forget(self, owner: str, gone: asyncio.Future[None]) -> None:
        queue = self._queues[owner]
        queue.remove(gone)
        if not queue:
            del self._queues[owner]
