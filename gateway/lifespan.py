"""What lives as long as the gateway: made in order at the start, closed in reverse at the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress

from fastapi import FastAPI
from redis.asyncio import Redis
from sqlalchemy.exc import SQLAlchemyError

from batch.clock import SystemClock
from batch.files import make_file_store
from batch.queue import CeleryQueue
from batch.settings import BatchSettings
from batch.worker.app import make_app as make_celery
from engine_adapter.client.base import EngineFacts
from engine_adapter.client.http import HttpEngineClient
from engine_adapter.client.pool import EnginePool
from gateway.admission import Admission
from gateway.auth.keys import KeyRing
from gateway.auth.usage import UsageRecorder
from gateway.observability.metrics import Metrics
from gateway.settings import GatewaySettings
from store.repositories import engine as engines
from store.session import Database

_BROKER_PROBE_S = 2.0
_ABORTS_S = 2.5
FLUSH_S = 1.0


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Put the resources on `app.state` (see `gateway.dependencies`)."""
    settings: GatewaySettings = app.state.settings
    metrics: Metrics = app.state.metrics
    async with AsyncExitStack() as stack:
        database = Database(settings.database_url)
        stack.push_async_callback(database.dispose)
        broker = Redis.from_url(
            settings.broker_url,
            socket_timeout=_BROKER_PROBE_S,
            socket_connect_timeout=_BROKER_PROBE_S,
        )
        stack.push_async_callback(broker.aclose)
        register = _Register(database)
        clients = [HttpEngineClient(url) for url in settings.engines]
        pool = EnginePool(clients, seen=register.note)
        stack.push_async_callback(pool.close)
        pool.remember(await _remembered(database))
        usage = UsageRecorder(database, metrics)
        celery = make_celery(BatchSettings.model_validate({"BROKER_URL": settings.broker_url}))
        stack.callback(celery.close)

        app.state.database = database
        app.state.broker = broker
        app.state.engines = pool
        app.state.usage = usage
        app.state.keys = KeyRing(database)
        admission = app.state.admission = Admission(pool, metrics, settings.max_in_flight)
        app.state.file_store = make_file_store(settings)
        app.state.queue = CeleryQueue(celery, settings.engines)
        app.state.clock = SystemClock()

        async with asyncio.TaskGroup() as group:
            stopping = asyncio.Event()
            probing = group.create_task(pool.run())
            group.create_task(_keep_books(stopping, usage.flush, register.flush))
            try:
                yield
            finally:
                # The server cancels what outlives its grace and goes on at once; the engine
                # must still be told.
                await admission.drained(_ABORTS_S)
                probing.cancel()
                stopping.set()


async def _keep_books(stopping: asyncio.Event, *flushes: Callable[[], Awaitable[object]]) -> None:
    """Write what has been noted, every second and once at the end.

    It ends by an event and is never cancelled: a write cut in the middle would leave open whether
    it happened.
    """
    while not stopping.is_set():
        with suppress(TimeoutError):
            async with asyncio.timeout(FLUSH_S):
                await stopping.wait()
        for flush in flushes:
            await flush()


class _Register:
    """Writes what engines said about themselves, so that it is known after a restart."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._noted: dict[str, EngineFacts] = {}

    def note(self, url: str, facts: EngineFacts) -> None:
        """Remember new facts until the next flush."""
        self._noted[url] = facts

    async def flush(self) -> None:
        """Write what was noted; what cannot be written is kept for the next time."""
        noted, self._noted = self._noted, {}
        if not noted:
            return
        try:
            async with self._database.unit_of_work() as session:
                for url, facts in noted.items():
                    more = {
                        "kv_tokens": facts.kv_tokens,
                        "max_running": facts.max_running,
                        "version": facts.version,
                    }
                    await engines.saw(session, url, facts.model, facts.context_tokens, more)
        except (SQLAlchemyError, OSError):
            self._noted = {**noted, **self._noted}


async def _remembered(database: Database) -> dict[str, EngineFacts]:
    try:
        async with database.unit_of_work() as session:
            return {
                engine.url: EngineFacts(engine.model, engine.context_tokens or 0)
                for engine in await engines.list_all(session)
                if engine.model
            }
    except (SQLAlchemyError, OSError):
        # The gateway starts without its database, says so in /readyz and works when it is there.
        return {}
