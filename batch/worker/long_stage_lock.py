"""One long stage of a project at a time, so that its large files keep no other project waiting.

Validating a large file, and writing large ones, takes one of the few processes of the stages for
seconds or longer. A project that has such a stage running gets none beside it: the next is put off
(batch/worker/stage_work.py). Short stages need no lock.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from sqlalchemy.ext.asyncio import AsyncSession

from store.repositories import long_stage, validation
from store.session import Database

LONG_BYTES: Final = 32 * 1024**2
LONG_LINES: Final = 5000
"""A stage of a batch with so large an input, or so many rows, is long."""

IDLE_LIMIT_S: Final = 180.0
"""The server gives the lock to others that it has heard nothing of for this long."""

BE_HEARD_S: Final = 30.0
"""How often it hears of one."""

logger = logging.getLogger(__name__)


@asynccontextmanager
async def long_stage_lock(database: Database, batch_id: str) -> AsyncIterator[bool]:
    """Hold the project's lock on long stages; yields False if another long stage has it."""
    async with database.unit_of_work() as session:
        project_id = await long_stage.project_of_long(
            session, batch_id, long_bytes=LONG_BYTES, long_rows=LONG_LINES
        )
    if project_id is None:
        yield True
        return
    async with database.unit_of_work() as session:
        taken = await long_stage.try_take(session, project_id, idle_limit_s=IDLE_LIMIT_S)
        if not taken:
            logger.info("%s waits: another long stage of its project runs", batch_id)
        async with _heard(session):
            yield taken


@asynccontextmanager
async def _heard(session: AsyncSession) -> AsyncIterator[None]:
    """Let the server hear of a transaction that nobody else uses meanwhile."""
    over = asyncio.Event()

    async def be_heard() -> None:
        while not over.is_set():
            try:
                async with asyncio.timeout(BE_HEARD_S):
                    await over.wait()
            except TimeoutError:
                await validation.be_heard(session)

    # No group: it would wrap the errors of the block, which callers tell apart.
    hearing = asyncio.ensure_future(be_heard())
    try:
        yield
    finally:
        over.set()
        await hearing
