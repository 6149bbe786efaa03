"""Objects go from the file store, some at a time; one that cannot be removed holds up no other.

    never tried ──► removed
        └─────────► failed (`removal_failed_at`) ──► tried again by the next run, after all others

A removal that hangs has failed, too: the run goes on, and its budget ends between two steps.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Final

from sqlalchemy.ext.asyncio import AsyncSession

from api.batch_errors import StorageFull, StorageUnavailable
from service.clock import Clock, SystemClock
from store.session import Database

COLLECT_AT_ONCE: Final = 32
REMOVE_LIMIT_S: Final = 10.0
RUN_S: Final = 30.0
STEP_ROWS: Final = 1000

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Budget:
    """How long a run may begin new steps; each kind of object has one of its own."""

    clock: Clock
    until_s: float

    @classmethod
    def of(cls, run_s: float = RUN_S, clock: Clock | None = None) -> Budget:
        """A budget that is used up `run_s` seconds from now."""
        clock = clock or SystemClock()
        return cls(clock, clock.monotonic() + run_s)

    @property
    def left(self) -> bool:
        """Whether another step may begin."""
        return self.clock.monotonic() < self.until_s


async def removed(
    keys: Collection[str],
    remove: Callable[[str], Awaitable[None]],
    *,
    limit_s: float = REMOVE_LIMIT_S,
) -> set[str]:
    """Remove objects at the same time; those that are gone now. Never raises for one of them."""

    async def one(key: str) -> str | None:
        try:
            async with asyncio.timeout(limit_s):
                await remove(key)
        except (OSError, ValueError, StorageFull, StorageUnavailable) as error:
            logger.warning("%s cannot be removed: %s", key, str(error) or type(error).__name__)
            return None
        return key

    done = await asyncio.gather(*map(one, keys))
    return {key for key in done if key is not None}


async def in_steps(step: Callable[[bool], Awaitable[int]], budget: Budget) -> None:
    """Repeat a step while it finds a full page: first what was never tried, then what failed.

    Args:
        step: Given whether it is the turn of what failed before; says how many it looked at.
        budget: Checked between steps.
    """
    for failed_before in (False, True):
        while budget.left:
            if await step(failed_before) < COLLECT_AT_ONCE:
                break


async def forget(
    database: Database,
    step: Callable[[AsyncSession, int], Awaitable[int]],
    budget: Budget | None = None,
) -> int:
    """Remove rows of the database, `STEP_ROWS` in a transaction; how many."""
    budget = budget or Budget.of()
    num_removed = 0
    while budget.left:
        async with database.unit_of_work() as session:
            found = await step(session, STEP_ROWS)
        num_removed += found
        if found < STEP_ROWS:
            break
    return num_removed
