"""Runs of stages are counted in the database: workers have no page for metrics of their own."""

from __future__ import annotations

import logging
import resource
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace

from sqlalchemy.exc import SQLAlchemyError

from store.repositories import stage_count
from store.repositories.stage_count import StageRuns
from store.session import Database

logger = logging.getLogger(__name__)


class RunCounter:
    """What this process ran since it last wrote it down."""

    def __init__(self) -> None:
        self._runs: dict[str, StageRuns] = {}

    @contextmanager
    def measured(self, stage: str, num: int = 1) -> Iterator[None]:
        """Count what the block took, a stage of `num` batches, and whether it raised."""
        began_s, began_cpu_s, num_failed = time.monotonic(), time.process_time(), num
        try:
            yield
            num_failed = 0
        finally:
            before = self._runs.get(stage, StageRuns(stage, 0, 0, 0.0, 0.0, 0))
            self._runs[stage] = replace(
                before,
                num_runs=before.num_runs + num,
                num_failed=before.num_failed + num_failed,
                wall_s=before.wall_s + time.monotonic() - began_s,
                cpu_s=before.cpu_s + time.process_time() - began_cpu_s,
                peak_rss_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            )

    async def write(self, database: Database) -> None:
        """Write it down; a count that fails is not worth a stage."""
        runs, self._runs = self._runs, {}
        if not runs:
            return
        try:
            async with database.unit_of_work() as session:
                for _, one in sorted(runs.items()):
                    await stage_count.add(session, one)
        except (SQLAlchemyError, OSError) as error:
            logger.warning("runs of %s were not counted: %s", ", ".join(runs), type(error).__name__)


@asynccontextmanager
async def counted(stage: str, database: Database) -> AsyncIterator[None]:
    """Count one run, the block, and write it down."""
    counter = RunCounter()
    try:
        with counter.measured(stage):
            yield
    finally:
        await counter.write(database)
