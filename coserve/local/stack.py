"""`coserve up`: the whole stack on one machine, from nothing to ready and back."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from batch.settings import BatchSettings
from coserve.backup.archive import BackupError
from coserve.backup.making import sweep
from coserve.backup.restoring import finish
from coserve.local import postgres, valkey
from coserve.local.credentials import ensure_admin_key, session_secret
from coserve.local.database import DATABASE_NAME, MigrationFailed, migrate
from coserve.local.lock import HomeLock
from coserve.local.part import StartFailedError
from coserve.local.plans import (
    ENGINE_RANK,
    SERVER_RANK,
    SERVICE_RANK,
    Addresses,
    EngineInstall,
    engine_plan,
    gateway_plan,
    postgres_plan,
    valkey_plan,
    worker_plans,
)
from coserve.local.ports import free_port
from coserve.local.probes import answers_200, http_get, missing_parts
from coserve.local.supervisor import Supervisor
from coserve.settings import LocalSettings
from engine_adapter.liveness import EngineNotProven, verify_engine
from store.session import Database

_READY_LIMIT_S = 60.0
_CONNECT_LIMIT_S = 30.0
_PROOF_LIMIT_S = 120.0

Say = Callable[[str], None]


class Stack:
    """One run of the stack under the state directory's lock."""

    def __init__(
        self,
        settings: LocalSettings,
        lock: HomeLock,
        engine: EngineInstall | None,
        *,
        environ: Mapping[str, str] | None = None,
        say: Say,
    ) -> None:
        self._settings = settings
        self._home = settings.home_path
        self._lock = lock
        self._engine = engine
        self._environ = dict(os.environ if environ is None else environ)
        self._say = say
        self._started_at = time.monotonic()

    async def run(self, ready: Callable[[str, float], None]) -> None:
        """Start everything, call `ready(admin key, seconds)`, run until asked to stop.

        Raises:
            StartFailedError: A part did not start. Whatever did is stopped again.
        """
        async with asyncio.TaskGroup() as group:
            supervisor = Supervisor(
                self._home,
                group=group,
                url=self._settings.root_url,
                inherited_fds=(self._lock.children_fd,),
                say=self._say,
            )
            supervisor.listen_to_signals()
            try:
                starting = group.create_task(self._start(supervisor))
                asked = group.create_task(supervisor.wait_for_stop())
                await asyncio.wait({starting, asked}, return_when=asyncio.FIRST_COMPLETED)
                if starting.done() and not supervisor.stop_was_asked:
                    ready(starting.result(), time.monotonic() - self._started_at)
                    await supervisor.wait_for_stop()
                self._say("Stopping ...")
                starting.cancel()
                await asyncio.wait({starting})
            finally:
                stopped_at = time.monotonic()
                await supervisor.stop()
            self._say(f"Everything has stopped ({time.monotonic() - stopped_at:.1f} s).")

    # --- starting -----------------------------------------------------------------------------

    async def _start(self, supervisor: Supervisor) -> str:
        """Start all parts; the admin key."""
        with self._step("waiting for what is left of the last run", quiet_s=0.2):
            await asyncio.to_thread(self._lock.wait_for_children, _CONNECT_LIMIT_S)
        await asyncio.to_thread(sweep, self._home)
        for folder in ("log", "run", "files"):
            (self._home / folder).mkdir(mode=0o700, exist_ok=True)
        async with asyncio.TaskGroup() as group:
            engine = group.create_task(self._start_engine(supervisor))
            database = group.create_task(self._start_database(supervisor))
            broker = group.create_task(self._start_broker(supervisor))
            key = group.create_task(self._prepare_database(database))
        addresses = Addresses(database.result(), broker.result(), engine.result())
        secret = self._settings.secret
        env = addresses.environment(
            self._settings,
            secret.get_secret_value() if secret else session_secret(self._home),
            self._environ,
        )
        batch = BatchSettings.model_validate({"ENGINE_URLS": addresses.engine_urls})
        with self._step("worker, beat, gateway"):
            async with asyncio.TaskGroup() as group:
                for plan in worker_plans(self._home, env, batch):
                    group.create_task(supervisor.start(plan, rank=SERVICE_RANK))
                group.create_task(
                    supervisor.start(gateway_plan(self._settings, env), rank=SERVICE_RANK)
                )
            await self._wait_until_ready()
        return key.result()

    async def _start_database(self, supervisor: Supervisor) -> str:
        if self._settings.database_url:
            self._say("  Postgres: DATABASE_URL is used")
            return self._settings.database_url
        with self._step("Postgres 18"):
            files = await asyncio.to_thread(postgres.prepare, self._home)
            await asyncio.to_thread(postgres.stop_leftover, files)
            await supervisor.start(postgres_plan(files, self._home), rank=SERVER_RANK)
            await asyncio.to_thread(postgres.ensure_database, files, DATABASE_NAME)
        return files.url(DATABASE_NAME)

    async def _prepare_database(self, started: asyncio.Task[str]) -> str:
        url = await started
        with self._step("database tables"):
            try:
                if await asyncio.to_thread(finish, self._home, url):
                    self._say("  a restore that was cut off is finished")
                await asyncio.to_thread(migrate, url)
            except (BackupError, MigrationFailed) as error:
                raise StartFailedError(f"{_whose(self._settings)}: {error}") from error
        database = Database(url)
        try:
            key, made = await ensure_admin_key(database, self._home)
        finally:
            await database.dispose()
        self._say(f"  admin key: {'made' if made else 'ready'} ({self._home / 'admin-key'})")
        return key

    async def _start_broker(self, supervisor: Supervisor) -> str:
        if self._settings.broker_url:
            self._say("  Valkey: BROKER_URL is used")
            return self._settings.broker_url
        with self._step("Valkey 9"):
            files = await asyncio.to_thread(valkey.prepare, self._home)
            await supervisor.start(valkey_plan(files, self._home), rank=SERVER_RANK)
        return files.url

    async def _start_engine(self, supervisor: Supervisor) -> str:
        if self._engine is None:
            assert self._settings.engine_urls
            self._say("  engine: ENGINE_URLS is used")
            return self._settings.engine_urls
        port = free_port()
        plan = engine_plan(self._settings, self._engine, port)
        device = "CUDA" if self._engine.cuda else "CPU"
        title = f"engine with {self._engine.model_dir.name} on {device}"
        self._say(f"  {title} ...")
        with self._step(title):
            await supervisor.start(plan, rank=ENGINE_RANK)
        url = f"http://127.0.0.1:{port}"
        with self._step("engine self-test"):
            try:
                await verify_engine(url, self._engine.model_dir.name, _PROOF_LIMIT_S)
            except EngineNotProven as error:
                raise StartFailedError(f"{error} Its log: {plan.command.log}") from error
        return url

    async def _wait_until_ready(self) -> None:
        url = f"{self._settings.root_url}/statusz"
        is_ready = answers_200(url)
        limit = time.monotonic() + _READY_LIMIT_S
        while not await is_ready():
            if time.monotonic() > limit:
                missing = missing_parts(await asyncio.to_thread(http_get, url))
                raise StartFailedError(
                    f"Not ready after {_READY_LIMIT_S:.0f} s: {missing}. "
                    f"Logs are in {self._home / 'log'}"
                )
            await asyncio.sleep(0.1)

    @contextmanager
    def _step(self, name: str, quiet_s: float = 0.0) -> Iterator[None]:
        """Say what was done and how long it took; nothing when it took less than `quiet_s`."""
        started_at = time.monotonic()
        yield
        took_s = time.monotonic() - started_at
        if took_s >= quiet_s:
            self._say(f"  {name}: {took_s:.1f} s")


def _whose(settings: LocalSettings) -> str:
    return "DATABASE_URL" if settings.database_url else "The embedded database"
