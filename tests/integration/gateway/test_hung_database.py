"""A Postgres that hangs instead of dying: callers are told so in seconds, and it may come back."""

from __future__ import annotations

import asyncio
import shutil
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil
import pytest
import pytest_asyncio
from sqlalchemy.exc import OperationalError

from coserve.local import postgres
from coserve.local.part import ManagedProcess
from gateway.settings import GatewaySettings
from store.bounded_connection import ANSWER_LIMIT_S, CONNECT_LIMIT_S
from store.session import Database
from tests.fakes.engine import FakeEngine
from tests.fakes.server import serving
from tests.fixtures.online import Gateway, running_gateway
from tests.fixtures.servers import migrate, wait_for

TOLD_IN_S = ANSWER_LIMIT_S + CONNECT_LIMIT_S + 4
READY_IN_S = 3.0 + 1.5
MODEL = "fake-model"


class OwnPostgres:
    """A server of this test alone, which can be stopped and continued with all its children."""

    def __init__(self, files: postgres.PostgresFiles, process: ManagedProcess) -> None:
        self.files = files
        self.process = process

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """None of its processes runs meanwhile."""
        # The shim first of all: its children are the server and what that has started.
        processes = psutil.Process(self.process.pid).children(recursive=True)
        assert len(processes) > 1
        try:
            for process in processes:
                process.send_signal(signal.SIGSTOP)
            yield
        finally:
            for process in processes:
                process.send_signal(signal.SIGCONT)


@pytest.fixture
def own_postgres(servers_home: Path) -> Iterator[OwnPostgres]:
    home = servers_home / "hung"
    home.mkdir(exist_ok=True)
    files = postgres.prepare(home, durable=False)
    process = ManagedProcess(postgres.command(files, home / "postgres.log", durable=False))
    try:
        wait_for(lambda: postgres.is_ready(files), process)
        postgres.ensure_database(files, "hung")
        migrate(files.url("hung"))
        yield OwnPostgres(files, process)
    finally:
        process.stop()
        shutil.rmtree(files.data_dir.parent)


@pytest_asyncio.fixture
async def gateway(
    own_postgres: OwnPostgres, broker_url: str, tmp_path: Path
) -> AsyncIterator[Gateway]:
    url = own_postgres.files.url("hung")
    database = Database(url)
    async with serving(FakeEngine()) as engine_url:
        settings = GatewaySettings(
            database_url=url, broker_url=broker_url, engine_urls=engine_url, home=tmp_path
        )
        async with running_gateway(database, settings, MODEL) as running:
            yield running
    await database.dispose()


async def _timed(http: httpx.AsyncClient, path: str) -> tuple[httpx.Response, float]:
    began_at = time.monotonic()
    reply = await http.get(path)
    return reply, time.monotonic() - began_at


async def test_a_hung_database_is_503_in_seconds_and_comes_back(
    gateway: Gateway, own_postgres: OwnPostgres
) -> None:
    async with gateway.http() as http, asyncio.timeout(60):
        assert (await http.get("/v1/batches/batch_none")).status_code == 404
        with own_postgres.stopped():
            ready, took_s = await _timed(http, "/statusz")
            assert took_s < READY_IN_S
            assert ready.status_code == 503
            parts = ready.json()["parts"]
            assert parts["database"] == {"ok": False, "why": "did not answer within 3 s"}
            assert parts["broker"] == {"ok": True, "why": None}
            # More than the pool has connections: those that get none are told as well.
            asked = [_timed(http, f"/v1/batches/batch_{i}") for i in range(15)]
            for reply, took_s in await asyncio.gather(*asked):
                assert took_s < TOLD_IN_S
                assert reply.status_code == 503, reply.text
                assert reply.json()["error"]["code"] == "database_unavailable"
                assert reply.headers["retry-after"]
        while (await http.get("/statusz")).status_code != 200:
            await asyncio.sleep(0.1)
        assert (await http.get("/v1/batches/batch_none")).status_code == 404


async def test_a_dead_database_cannot_be_reached(
    gateway: Gateway, own_postgres: OwnPostgres
) -> None:
    own_postgres.process.stop()
    async with gateway.http() as http, asyncio.timeout(30):
        ready, took_s = await _timed(http, "/statusz")
        assert took_s < READY_IN_S
        assert ready.json()["parts"]["database"] == {"ok": False, "why": "cannot be reached"}
        reply = await http.get("/v1/batches/batch_none")
        assert reply.json()["error"]["code"] == "database_unavailable"


async def test_each_wait_has_its_own_limit(own_postgres: OwnPostgres) -> None:
    database = Database(own_postgres.files.url("hung"), limit_s=0.5)
    async with asyncio.timeout(20):
        await database.ping()
        with own_postgres.stopped():
            began_at = time.monotonic()
            with pytest.raises(OperationalError):
                await database.ping()
            assert time.monotonic() - began_at < ANSWER_LIMIT_S
        await database.ping()
    await database.dispose()
