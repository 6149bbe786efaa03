"""What the tasks run: one stage, with the resources it needs opened and closed around it."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import socket
import time
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from typing import Any

import uvloop
from sqlalchemy.exc import InterfaceError, OperationalError, SQLAlchemyError

from api.batch_errors import StorageFull
from batch.files import FileStore, make_file_store
from batch.finish.duties import duties, fulfil
from batch.queue import DELIVER, DISPATCH, CeleryQueue
from batch.run import lease
from batch.run.dispatch import Dispatcher, DispatchLimits, Ending
from batch.run.lease import Lease
from batch.settings import LEASE_STALE_S, BatchSettings
from batch.storage import StageWaits, full_place, note_full
from batch.webhooks.deliver import deliver
from batch.webhooks.names import ReceiverNames
from batch.webhooks.sender import Sender
from batch.worker import sweep
from batch.worker.drain import DrainPipe
from batch.worker.stage_work import StageWork
from engine_adapter.client.engine_address import usable
from engine_adapter.client.http import HttpEngineClient
from service.clock import SystemClock
from store.bounded_connection import ANSWER_LIMIT_S, WORK_LIMIT_S
from store.failures import DATABASE_ERRORS
from store.repositories import dispatcher as dispatchers
from store.repositories import stage_count
from store.repositories.stage_count import StageRuns
from store.schema import check_schema
from store.session import Database

# --- Runs of stages are counted in the database: workers have no page for metrics of their own.


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


POOL_SIZE = 4
"""A stage: a turn, a validation's lock, what it reads and writes, and its claim."""


class Stages:
    """The stages over one worker's settings.

    A process keeps its event loop, its connections and whose turn it is from task to task.
    Everything is opened after the fork, inside a task.
    """

    def __init__(self, app: Any, settings: BatchSettings, drain: DrainPipe) -> None:
        self._settings = settings
        self._drain = drain
        self._queue = CeleryQueue(app)
        self._runner: asyncio.Runner | None = None
        self._open_database: Database | None = None
        self._open_files: FileStore | None = None
        self._stage_work: StageWork | None = None
        self._counter = RunCounter()

    def run(self, task: Coroutine[Any, Any, object]) -> None:
        """Run a task to its end in this process's event loop."""
        if self._runner is None:
            self._runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        try:
            self._runner.run(task)
        except StageWaits as waits:
            logger.warning("%s waits for room", waits)
        except BaseException:
            # A time limit leaves the task behind in the middle of its work.
            self.close()
            raise

    def close(self) -> None:
        """End whatever the process keeps; the next task opens it anew."""
        runner, self._runner = self._runner, None
        if runner is None:
            return
        try:
            runner.run(self._end())
        finally:
            runner.close()

    async def _end(self) -> None:
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await self.aclose()

    async def aclose(self) -> None:
        """Close what tasks have opened, in their event loop."""
        database, self._open_database = self._open_database, None
        files, self._open_files = self._open_files, None
        self._stage_work = None
        if files is not None:
            await files.close()
        if database is not None:
            await database.dispose()

    async def check_schema(self) -> None:
        """Raise unless the database has the tables this code needs (`store.schema`)."""
        database = Database(
            self._settings.database_url,
            prepares=self._settings.database_prepares,
            limit_s=ANSWER_LIMIT_S,
        )
        try:
            await check_schema(database)
        finally:
            await database.dispose()

    async def stages(self) -> None:
        """Validate, finalize and expire batches that want it, for a while."""
        database = self._database()
        if self._stage_work is None:
            self._stage_work = StageWork(
                database,
                self._files(),
                self._queue,
                SystemClock(),
                measured=self._counter.measured,
                enqueued_token_limit=self._settings.batch_enqueued_tokens,
                aliases=self._settings.aliases,
                watchdog=True,
            )
        try:
            with self._drain.watched() as drain:
                async with self._room("stage work"):
                    await self._stage_work.run(drain)
        finally:
            await self._counter.write(database)

    async def deliver(self) -> None:
        """Send the webhooks that are due."""
        clock = SystemClock()
        names = ReceiverNames(self._settings.webhook_servers)
        sender = Sender(self._settings.webhook_targets, clock, names)
        async with self._stage("deliver") as database:
            try:
                with self._drain.watched() as drain:
                    more_work = await deliver(database, sender, worker=this_worker(), drain=drain)
            finally:
                await names.close()
        if more_work:
            await self._queue.wake(DELIVER)

    async def sweep(self) -> None:
        async with self._stage("sweep") as database:
            await sweep.sweep(database, self._queue, self._settings.engines)

    async def gc_files(self) -> None:
        files = self._files()
        async with self._stage("gc_files") as database:
            retention_s = self._settings.batch_retention_days * 86400.0
            await fulfil(duties(database, files, SystemClock(), retention_s=retention_s))

    async def dispatch(self) -> Ending | None:
        """Be the dispatcher of an engine that has none, until there is nothing to do."""
        settings = self._settings
        clock = SystemClock()
        files = self._files()
        async with self._room("dispatch"):
            held = await self._lease(self._database(ask_first=False), clock)
        if held is None:
            return None
        async with self._stage("dispatch", ask_first=False) as database:
            engine = HttpEngineClient(held.engine_url, settings.foreign)
            limits = DispatchLimits(
                max_in_flight=settings.batch_max_in_flight,
                max_bytes=settings.batch_max_bytes,
                max_attempts=settings.batch_max_attempts,
                row_timeout_s=settings.batch_row_timeout_s,
            )
            try:
                with self._drain.watched() as drain:
                    dispatcher = Dispatcher(
                        held,
                        engine,
                        database,
                        files,
                        self._queue,
                        clock,
                        limits,
                        drain=drain,
                        watchdog=True,
                    )
                    ending = await dispatcher.run()
            finally:
                await engine.close()
            logger.info("dispatcher of %s: %s", held.engine_url, ending)
        if ending.more_work:
            await self._queue.wake(DISPATCH)
        return ending

    async def _lease(self, database: Database, clock: SystemClock) -> Lease | None:
        """The lease of an engine that should have a dispatcher and has none; others are woken."""
        try:
            idle = await self._idle_engines(database)
        except (OperationalError, InterfaceError):
            # Nobody asked whether the connection of an earlier look still lives.
            idle = await self._idle_engines(database)
        while idle:
            held = await lease.acquire(idle.pop(0), database, clock)
            if held is not None:
                if idle:
                    await self._queue.wake(DISPATCH, len(idle))
                return held
        return None

    async def _idle_engines(self, database: Database) -> list[str]:
        async with database.unit_of_work() as session:
            found = await dispatchers.idle_engines(
                session, self._settings.engines, stale_s=LEASE_STALE_S
            )
        return usable(found)

    def _database(self, *, ask_first: bool = True) -> Database:
        """This process's, which serves either dispatchers or everything else."""
        if self._open_database is None:
            self._open_database = Database(
                self._settings.database_url,
                pool_size=POOL_SIZE,
                max_overflow=self._settings.database_overflow,
                prepares=self._settings.database_prepares,
                ask_first=ask_first,
                limit_s=WORK_LIMIT_S,
            )
        return self._open_database

    def _files(self) -> FileStore:
        if self._open_files is None:
            self._open_files = make_file_store(self._settings)
        return self._open_files

    @asynccontextmanager
    async def _stage(self, stage: str, *, ask_first: bool = True) -> AsyncIterator[Database]:
        """For one run of a stage, which is counted."""
        database = self._database(ask_first=ask_first)
        async with self._room(stage), counted(stage, database):
            yield database
        if not ask_first:
            # Nobody asks these connections for a sign of life before the next run.
            await database.dispose()

    @asynccontextmanager
    async def _room(self, stage: str) -> AsyncIterator[None]:
        """A stage that meets a full disk waits for room, and says so."""
        try:
            yield
        except (StorageFull, *DATABASE_ERRORS) as error:
            place = full_place(error)
            if place is None:
                raise
            await note_full(self._database(), place)
            raise StageWaits(stage) from error


def this_worker() -> str:
    """The worker that this process is one of: its host, and the process that started this one."""
    return f"{socket.gethostname()}/{os.getppid()}"
