"""What the tasks run: one stage, with the resources it needs opened and closed around it."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import uvloop

from batch import (
    arrivals,
    collect,
    finalize,
    idempotency,
    lease,
    parted_upload,
    retain,
    sweep,
    validate,
)
from batch.clock import SystemClock
from batch.dispatch import Dispatcher, DispatchLimits, Ending
from batch.errors import StorageFull
from batch.files import FileStore, make_file_store
from batch.queue import CeleryQueue
from batch.settings import BatchSettings
from batch.states import TERMINAL_BATCH, BatchStatus
from batch.storage import StageWaits, fail_unstorable, full_place, note_full
from batch.turns import turn
from batch.webhooks.deliver import collect_deliveries, deliver
from batch.webhooks.names import ReceiverNames
from batch.webhooks.sender import Sender
from batch.worker.counted import counted
from batch.worker.drain import DrainPipe
from engine_adapter.client.http import HttpEngineClient
from store.bounded_connection import ANSWER_LIMIT_S, WORK_LIMIT_S
from store.failures import DATABASE_ERRORS, is_refused
from store.repositories import engine as engines
from store.schema import check_schema
from store.session import Database

logger = logging.getLogger(__name__)

DISPATCH_POOL_SIZE = 4
STAGE_POOL_SIZE = 3
"""A turn, a validation's lock, and what it reads and writes."""

DELIVER_POOL_SIZE = 4


class Stages:
    """The stages over one worker's settings. Everything is opened after the fork, inside a task."""

    def __init__(self, app: Any, settings: BatchSettings, drain: DrainPipe) -> None:
        self._settings = settings
        self._drain = drain
        self._queue = CeleryQueue(app)

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

    async def validate(self, batch_id: str) -> None:
        """Read a batch's file; wake the dispatchers for its rows."""
        async with (
            self._database("validate") as database,
            self._files() as files,
            turn(database, batch_id) as may_run,
        ):
            if not may_run:
                return
            status = await self._validated(database, files, batch_id)
            if status is BatchStatus.IN_PROGRESS:
                await self._wake_dispatchers(database)
        if status is BatchStatus.FAILED:
            await self._queue.enqueue_deliver()

    async def _validated(
        self, database: Database, files: FileStore, batch_id: str
    ) -> BatchStatus | None:
        try:
            return await validate.validate(
                database,
                files,
                batch_id,
                enqueued_token_limit=self._settings.batch_enqueued_tokens,
                watchdog=True,
            )
        except DATABASE_ERRORS as error:
            if not is_refused(error):
                raise
            logger.exception("the rows of %s cannot be stored", batch_id)
            return await fail_unstorable(database, batch_id)

    async def finalize(self, batch_id: str) -> None:
        """Close a batch's rows and write its files, if it is its turn."""
        async with (
            self._database("finalize") as database,
            self._files() as files,
            turn(database, batch_id) as may_run,
        ):
            if not may_run:
                return
            status = await finalize.finalize(database, files, batch_id)
        if status in TERMINAL_BATCH:
            await self._queue.enqueue_deliver()
        elif status is not None:
            await self._queue.enqueue_finalize(batch_id)

    async def deliver(self) -> None:
        """Send the webhooks that are due."""
        clock = SystemClock()
        names = ReceiverNames(self._settings.webhook_servers)
        sender = Sender(self._settings.webhook_targets, clock, names)
        async with self._database("deliver", DELIVER_POOL_SIZE) as database:
            try:
                with self._drain.watched() as drain:
                    more_work = await deliver(database, sender, worker=this_worker(), drain=drain)
            finally:
                await names.close()
        if more_work:
            await self._queue.enqueue_deliver()

    async def sweep(self) -> None:
        """Repair."""
        async with self._database("sweep") as database:
            await sweep.sweep(database, self._queue, self._settings.engines)

    async def gc_files(self) -> None:
        """Remove the bytes of deleted and expired files; forget old keys and deliveries."""
        async with self._database("gc_files") as database, self._files() as files:
            await collect.collect_files(database, files)
            retention_s = self._settings.batch_retention_days * 86400.0
            await retain.retire(database, SystemClock(), retention_s=retention_s)
            await parted_upload.collect_parts(database, files)
            await arrivals.collect_arrivals(database, files)
            await idempotency.collect_keys(database)
            await collect_deliveries(database)
            await collect.collect_responses(database)

    async def dispatch(self, engine_url: str) -> Ending | None:
        """Be the engine's dispatcher until there is nothing to do; none where there is one."""
        settings = self._settings
        clock = SystemClock()
        async with (
            self._database("dispatch", DISPATCH_POOL_SIZE, ask_first=False) as database,
            self._files() as files,
        ):
            if engine_url not in await self._open_engines(database):
                return None
            held = await lease.acquire(engine_url, database, clock)
            if held is None:
                return None
            engine = HttpEngineClient(engine_url)
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
            logger.info("dispatcher of %s: %s", engine_url, ending)
            if ending.more_work:
                await self._wake_dispatchers(database)
        return ending

    async def _open_engines(self, database: Database) -> list[str]:
        """The engines that rows may be sent to."""
        async with database.unit_of_work() as session:
            found = await engines.in_use(session, self._settings.engines)
        return [one.url for one in found if not one.draining]

    async def _wake_dispatchers(self, database: Database) -> None:
        await self._queue.wake_dispatchers(await self._open_engines(database))

    @asynccontextmanager
    async def _database(
        self, stage: str, pool_size: int = STAGE_POOL_SIZE, *, ask_first: bool = True
    ) -> AsyncIterator[Database]:
        """For one run of a stage, which is counted."""
        database = Database(
            self._settings.database_url,
            pool_size=pool_size,
            max_overflow=self._settings.database_overflow,
            prepares=self._settings.database_prepares,
            ask_first=ask_first,
            limit_s=WORK_LIMIT_S,
        )
        try:
            async with counted(stage, database):
                yield database
        except (StorageFull, *DATABASE_ERRORS) as error:
            place = full_place(error)
            if place is None:
                raise
            await note_full(database, place)
            raise StageWaits(stage) from error
        finally:
            await database.dispose()

    @asynccontextmanager
    async def _files(self) -> AsyncIterator[FileStore]:
        files = make_file_store(self._settings)
        try:
            yield files
        finally:
            await files.close()


def this_worker() -> str:
    """The worker that this process is one of: its host, and the process that started this one."""
    return f"{socket.gethostname()}/{os.getppid()}"


def run(stage: Coroutine[Any, Any, object]) -> None:
    """Run one stage to its end in an event loop of its own."""
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(stage)
    except StageWaits as waits:
        logger.warning("%s waits for room", waits)
