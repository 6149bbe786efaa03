"""What clients send is parsed a little at a time, by turns of their addresses.

One read of a socket brings up to a quarter of a megabyte, and what that is work for, the client
chooses: thousands of chunks of one byte, or of requests in a row. A turn of the event loop spends
`BUDGET_S` on parsing, however many connections have something to be parsed; the rest waits for
the next turns, and in between the loop looks at its sockets.

    turn of the loop   A A A │ sockets │ A B A │ sockets │ A A A │ ...
    A sends 256 KiB    B's head comes
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Final

BUDGET_S: Final = 0.002
PIECE_BYTES: Final = 2048
"""What is parsed in one step, unless it is a body of known length, which costs nothing."""

_LEAST_S: Final = 1e-9
"""Something was spent, whatever the clock says."""

Step = Callable[[], bool]
"""Parses a piece; whether there is more to be parsed at once."""


class ReadingTurns:
    """Whose bytes are parsed, and when. For one event loop.

    Invariant: `_next` is about to be called while anything waits or anything was spent. An owner
    has a queue exactly while it waits.

    Args:
        budget_s: What one turn of the loop spends; its last step may exceed it.
        now: Seconds.
    """

    def __init__(
        self, budget_s: float = BUDGET_S, now: Callable[[], float] = time.perf_counter
    ) -> None:
        self._budget_s = budget_s
        self._now = now
        self._spent_s = 0.0
        self._queues: dict[str, deque[Step]] = {}

    def run(self, owner: str, step: Step) -> None:
        """Call `step` until there is no more: at once, or as the owner's turns come."""
        if not self._queues and self._spent_s < self._budget_s and not self._spend(step):
            return
        self._queues.setdefault(owner, deque()).append(step)

    def _spend(self, step: Step) -> bool:
        """Call it for what is left of the budget; whether there is more."""
        if not self._spent_s:
            asyncio.get_running_loop().call_soon(self._next)
            self._spent_s = _LEAST_S
        began_s, before_s = self._now(), self._spent_s
        more = True
        while more and self._spent_s < self._budget_s:
            more = step()
            self._spent_s = before_s + self._now() - began_s
        return more

    def _next(self) -> None:
        """A new turn of the loop: a step of each owner after the other."""
        self._spent_s = 0.0
        began_s = self._now()
        while self._queues and self._spent_s < self._budget_s:
            owner = next(iter(self._queues))
            queue = self._queues.pop(owner)
            step = queue.popleft()
            if step():
                queue.append(step)
            if queue:
                self._queues[owner] = queue  # its next one comes after all others'
            self._spent_s = max(_LEAST_S, self._now() - began_s)
        if self._spent_s:
            asyncio.get_running_loop().call_soon(self._next)
