"""Each run of a stage is counted in the database: workers have no page for metrics of their own."""

from __future__ import annotations

import logging
import resource
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sqlalchemy.exc import SQLAlchemyError

from store.repositories import stage_count
from store.repositories.stage_count import StageRun
from store.session import Database

logger = logging.getLogger(__name__)


@asynccontextmanager
async def counted(stage: str, database: Database) -> AsyncIterator[None]:
    """Count what the block took and whether it raised; a count that fails is not worth a stage."""
    began_s, began_cpu_s, failed = time.monotonic(), time.process_time(), True
    try:
        yield
        failed = False
    finally:
        run = StageRun(
            stage,
            failed,
            time.monotonic() - began_s,
            time.process_time() - began_cpu_s,
            resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        )
        try:
            async with database.unit_of_work() as session:
                await stage_count.add(session, run)
        except (SQLAlchemyError, OSError) as error:
            logger.warning("a run of %s was not counted: %s", stage, type(error).__name__)
