"""What became ready in one turn of the event loop is not all done in it.

A tenant without a limit has as many requests ready in one moment as it has callers, and the next
token of another's open stream would wait for all of them. So a turn of the loop begins `STEPS`
pieces of work; the others wait for the next turns of the loop, by turns of their owners, and in
between it looks at its sockets.

    turn of the loop   A A A A │ sockets │ A B A A │ sockets │ A A A A │ ...
    ready              A × 64    B comes

A piece goes from here to where it waits for something else.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

STEPS: Final = 32
"""Some 2 ms of work."""

REQUEST: Final = 4
"""Steps that a piece of a request is; one of a stream's tokens is one step."""


class LoopTurns:
    """Whose work goes on, and when. For one event loop.

    Invariant: `_next` is about to be called while anything waits or `_num_begun` is not 0. Who
    waits has a queue, and no queue is empty.

    Args:
        steps: What one turn of the loop begins; the last piece may exceed it.
    """

    def __init__(self, steps: int = STEPS) -> None:
        self._steps = steps
        self._num_begun = 0
        self._queues: dict[str, deque[tuple[asyncio.Future[None], int]]] = {}

    def take(self, num_steps: int) -> bool:
        """Whether a piece may begin at once; if not, `wait`."""
        if self._queues or self._num_begun >= self._steps:
            return False
        if not self._num_begun:
            asyncio.get_running_loop().call_soon(self._next)
        self._num_begun += num_steps
        return True

    async def wait(self, owner: str, num_steps: int) -> None:
        """Wait for the turn of the loop that begins it."""
        loop = asyncio.get_running_loop()
        if not self._queues and not self._num_begun:
            loop.call_soon(self._next)
        mine = loop.create_future()
        self._queues.setdefault(owner, deque()).append((mine, num_steps))
        await mine

    def _next(self) -> None:
        """A new turn of the loop: one piece of each owner after the other."""
        self._num_begun = 0
        while self._queues and self._num_begun < self._steps:
            owner = next(iter(self._queues))
            queue = self._queues.pop(owner)
            mine, num_steps = queue.popleft()
            if queue:
                self._queues[owner] = queue  # its next one comes after all others'
            if not mine.done():  # its task was not cancelled
                mine.set_result(None)
                self._num_begun += num_steps
        if self._num_begun:
            asyncio.get_running_loop().call_soon(self._next)
