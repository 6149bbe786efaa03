"""Loops that run beside requests, each watched over alone.

A *pass* is one run of a loop's work. It handles what it expects: a database that is away, an
engine that does not answer. What it does not expect ends the pass, and nothing else:

    raised ──► logged with its stack ──► counted ──► a pause that doubles ──► the next pass

A loop that failed `DOWN_AFTER` times in a row is down until a pass succeeds, and so is one whose
pass has not ended for `STUCK_S`. /readyz is then 503 and names it, since a gateway that does not
bill, or lets revoked keys go on, must not serve. /statusz and `coserve status` name it too.

| loop | how it is kept | when it stays down |
| --- | --- | --- |
| gateway: list of engines, discovery, storage, replica, quarantine | `forever` | not ready |
| gateway: usage, limits, requests at once, keys, engines' facts, history | `until` | not ready |
| gateway: a watcher for each engine, and for the router | `forever` | its engine is not used |
| a dispatcher: lease, claims, watch, writer | one group | it ends; another takes its lease |
| a worker: a batch's stage, a part of the sweep, a duty of the collection | alone | begun again |
| a deliverer of webhooks: one post | logged alone | its delivery is made again after its lease |
| `engine_adapter.registration`: beat | `forever` | logged; gateways drop a silent engine |
| `coserve up`: the keeper of a part | one group | the stack ends, and says why |

What belongs to one request (streams, choices, exchanges) fails with it. No loop of the gateway ends
the process: a new one would have lost the usage and settlements that this one still holds.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

DOWN_AFTER: Final = 3
FIRST_PAUSE_S: Final = 0.5
MAX_PAUSE_S: Final = 30.0
STUCK_S: Final = 120.0

Pass = Callable[[], Awaitable[object]]

logger = logging.getLogger(__name__)


@dataclass(eq=False)
class _Loop:
    """One loop and how often it failed in a row."""

    name: str
    work: Pass
    every_s: float | None
    due: asyncio.Event
    vital: bool = True
    num_failures: int = 0
    begun_s: float = math.inf
    """When the pass that is under way began."""


class Loops:
    """The loops of one process; they run inside `async with`.

    Args:
        count: Adds to the failures of a loop, by its name; nothing when it begins.
        first_pause_s: After a first failure.
        stuck_s: How long a pass may take.

    Attributes:
        stopping: Set when the block ends.
    """

    def __init__(
        self,
        count: Callable[[str, int], object] = lambda name, num: None,
        *,
        first_pause_s: float = FIRST_PAUSE_S,
        stuck_s: float = STUCK_S,
    ) -> None:
        self._count = count
        self._first_pause_s = first_pause_s
        self._stuck_s = stuck_s
        self._group = asyncio.TaskGroup()
        self._loops: list[_Loop] = []
        self._endless: set[asyncio.Task[None]] = set()
        self.stopping = asyncio.Event()

    @property
    def down(self) -> list[str]:
        """The names of loops that stay down."""
        stuck_since_s = time.monotonic() - self._stuck_s
        return sorted(
            {
                one.name
                for one in self._loops
                if one.vital and (one.num_failures >= DOWN_AFTER or one.begun_s < stuck_since_s)
            }
        )

    def forever(
        self, name: str, work: Pass, *, every_s: float = 0.0, vital: bool = True
    ) -> asyncio.Task[None]:
        """Make a pass now and after each pause; cancelled at the end, in a pass too.

        Args:
            name: The same for all loops of a kind.
            work: What to do.
            every_s: The pause between two passes.
            vital: Whether the process is of no use while this loop is down.
        """
        task = self._start(_Loop(name, work, every_s, self.stopping, vital), first_s=0.0)
        self._endless.add(task)
        task.add_done_callback(self._endless.discard)
        return task

    def until(
        self, name: str, work: Pass, *, every_s: float | None, due: asyncio.Event | None = None
    ) -> None:
        """Make a pass after each pause, and a last one at the end; a pass is never cancelled.

        A write cut in the middle would leave open whether it happened.

        Args:
            name: See `forever`.
            work: What to do.
            every_s: The pause between two passes; none: only when it is due.
            due: Ends a pause. The pass clears it.
        """
        self._start(_Loop(name, work, every_s, due or self.stopping), first_s=every_s)

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for task in tuple(self._endless):
            task.cancel()
        self.stopping.set()
        for loop in self._loops:
            loop.due.set()
        # What ended the block is not told: it would cancel the last passes.
        await self._group.__aexit__(None, None, None)

    def _start(self, loop: _Loop, *, first_s: float | None) -> asyncio.Task[None]:
        self._count(loop.name, 0)
        task = self._group.create_task(self._run(loop, first_s), name=loop.name)
        self._loops.append(loop)
        task.add_done_callback(lambda _: self._loops.remove(loop))
        return task

    async def _run(self, loop: _Loop, first_s: float | None) -> None:
        await self._pause(first_s, loop.due)
        while True:
            is_last = self.stopping.is_set()
            succeeded = await self._succeeds(loop)
            if is_last:
                return
            if succeeded:
                await self._pause(loop.every_s, loop.due)
            else:
                # Also one that waits for what is due: nothing might come while it is down.
                await self._pause(self._pause_s(loop.num_failures), self.stopping)

    async def _pause(self, pause_s: float | None, due: asyncio.Event) -> None:
        if self.stopping.is_set():
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await due.wait()

    def _pause_s(self, num_failures: int) -> float:
        longest_s = min(MAX_PAUSE_S, self._first_pause_s * 2.0 ** min(num_failures - 1, 16))
        return longest_s * random.uniform(0.5, 1.0)

    async def _succeeds(self, loop: _Loop) -> bool:
        loop.begun_s = time.monotonic()
        try:
            await loop.work()
        except (Exception, asyncio.CancelledError) as error:
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                raise
            # Else something that the pass waited for was cancelled, which is a failure as others.
            loop.num_failures += 1
            self._count(loop.name, 1)
            logger.exception(
                "the loop %s failed, %d times in a row; it goes on", loop.name, loop.num_failures
            )
            return False
        finally:
            loop.begun_s = math.inf
        if loop.num_failures >= DOWN_AFTER:
            logger.warning("the loop %s works again", loop.name)
        loop.num_failures = 0
        return True
