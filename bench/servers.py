"""What benchmarks start, as durable as in production: Postgres, Valkey, engines, gateways."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import uvicorn
from alembic import command
from alembic.config import Config

from bench.paths import ROOT
from coserve.local import postgres, valkey
from coserve.local.part import ManagedProcess
from coserve.local.ports import free_port
from gateway.http.app import create_app
from gateway.settings import GatewaySettings
from store.models import DEFAULT_PROJECT_ID
from store.repositories import key as keys
from store.session import Database

DATABASE_LIMIT_S, START_LIMIT_S = 60.0, 180.0
NEVER_REACHED = 1_000_000_000


def stop(process: subprocess.Popen[bytes] | subprocess.Popen[str]) -> None:
    """Ask it to end; one that does not is killed."""
    process.terminate()
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextmanager
def postgres_url(folder: Path) -> Iterator[str]:
    """The URL of a new, migrated database that lives as long as the block."""
    files = postgres.prepare(folder)
    process = ManagedProcess(postgres.command(files, folder / "postgres.log"))
    try:
        limit = time.monotonic() + DATABASE_LIMIT_S
        while not postgres.is_ready(files):
            if process.poll() is not None or time.monotonic() > limit:
                raise RuntimeError((folder / "postgres.log").read_text()[-2000:])
            time.sleep(0.05)
        postgres.ensure_database(files, "bench")
        url = files.url("bench")
        config = Config(str(ROOT / "migrations" / "alembic.ini"))
        config.set_main_option("sqlalchemy.url", url.replace("%", "%%"))
        command.upgrade(config, "head")
        yield url
    finally:
        process.stop()


@contextmanager
def valkey_url(folder: Path) -> Iterator[str]:
    """The URL of a new broker that lives as long as the block."""
    files = valkey.prepare(folder)
    process = ManagedProcess(valkey.command(files, folder / "valkey.log"))
    try:
        limit = time.monotonic() + DATABASE_LIMIT_S
        while not valkey.is_ready(files):
            if process.poll() is not None or time.monotonic() > limit:
                raise RuntimeError((folder / "valkey.log").read_text()[-2000:])
            time.sleep(0.05)
        yield files.url
    finally:
        process.stop()


@dataclass(frozen=True)
class Server:
    """A server that answers.

    Attributes:
        name: What it is.
        url: Where.
        key: An API key that it takes.
        pid: The process whose CPU time and memory count.
    """

    name: str
    url: str
    key: str
    pid: int


@contextmanager
def started(
    argv: Sequence[str | Path], log: Path, env: Mapping[str, str], *, folder: Path = ROOT
) -> Iterator[subprocess.Popen[bytes]]:
    """A process without our own settings; the end of its log is printed where the block fails."""
    inherited = {name: value for name, value in os.environ.items() if "COSERVE" not in name}
    with log.open("ab") as out:
        process = subprocess.Popen(
            argv, cwd=folder, env={**inherited, **env}, stdout=out, stderr=subprocess.STDOUT
        )
    try:
        yield process
    except BaseException:
        sys.stderr.write(log.read_text(errors="replace")[-3000:])
        raise
    finally:
        stop(process)


@contextmanager
def printing(module: str, *options: str, name: str) -> Iterator[Server]:
    """A server of ours, in a process of its own, that prints its port and takes any key."""
    argv = [sys.executable, "-m", module, *options]
    process = subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        port = process.stdout.readline().split()[-1]
        yield Server(name, f"http://127.0.0.1:{port}", "", process.pid)
    finally:
        stop(process)


def fake_engine(*options: str) -> AbstractContextManager[Server]:
    """`tests.fakes.server` with these options."""
    return printing("tests.fakes.server", *options, name="direct")


def quick_engine(latency_ms: float) -> AbstractContextManager[Server]:
    """`bench.quick_engine`, which answers after so long."""
    return printing("bench.quick_engine", "--latency-ms", str(latency_ms), name="quick_engine")


def gateway_settings(
    folder: Path, engines: str, database: str, broker: str, port: int
) -> dict[str, str]:
    """A gateway's environment; `engines` are URLs with commas between them."""
    return {
        "DATABASE_URL": database,
        "BROKER_URL": broker,
        "ENGINE_URLS": engines,
        "COSERVE_HOME": str(folder),
        "COSERVE_PORT": str(port),
    }


@contextmanager
def gateway(
    folder: Path, engines: str, database: str, broker: str, key: str, *, root: Path = ROOT
) -> Iterator[Server]:
    """A gateway in a process of its own that knows a model.

    Args:
        folder: For its state and log.
        engines: URLs with commas between them.
        database: A URL.
        broker: A URL.
        key: One that is in the database.
        root: The checkout whose gateway it is.
    """
    port = free_port()
    env = gateway_settings(folder, engines, database, broker, port)
    # The working directory comes first among the places of modules.
    argv = [sys.executable, "-m", "gateway"]
    with started(argv, folder / "gateway.log", env, folder=root) as process:
        server = Server("gateway", f"http://127.0.0.1:{port}", key, process.pid)
        wait_for_models(process, server)
        yield server


@contextmanager
def one_gateway(folder: Path, fill: Callable[[str], None] | None = None) -> Iterator[Server]:
    """The gateway alone, with its engine, database (which `fill` may fill) and broker."""
    with surroundings(folder, fill) as (engine, database, broker):
        key = asyncio.run(new_key(database, role="admin"))
        with gateway(folder, engine, database, broker, key) as server:
            yield server


@contextmanager
def surroundings(
    folder: Path, fill: Callable[[str], None] | None = None
) -> Iterator[tuple[str, str, str]]:
    """What a gateway needs: the URLs of an engine, a database and a broker."""
    with (
        fake_engine("--context-tokens", "65536") as engine,
        postgres_url(folder) as database,
        valkey_url(folder) as broker,
    ):
        if fill is not None:
            fill(database)
        yield engine.url, database, broker


@asynccontextmanager
async def gateway_within(
    database: Database, url: str, broker: str, home: Path, engine: str = "http://127.0.0.1:1"
) -> AsyncIterator[Server]:
    """A gateway in this process, before this database."""
    async with database.unit_of_work() as session:
        _, key = await keys.create(session, DEFAULT_PROJECT_ID, "bench")
    settings = GatewaySettings.model_validate(
        {"DATABASE_URL": url, "BROKER_URL": broker, "ENGINE_URLS": engine, "home": home}
    )
    server = uvicorn.Server(uvicorn.Config(create_app(settings), port=0, log_config=None))
    serving = asyncio.ensure_future(server.serve())
    while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
        await asyncio.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield Server("gateway", f"http://127.0.0.1:{port}", key, os.getpid())
    finally:
        server.should_exit = True
        await serving


async def new_key(url: str, *, role: str | None = None, limited: bool = False) -> str:
    """A key of the default project; `limited`: its limits are looked at and never reached."""
    database = Database(url)
    async with database.unit_of_work() as session:
        limits = dict.fromkeys(("requests_per_minute", "tokens_per_minute"), NEVER_REACHED)
        _, plaintext = await keys.create(
            session, DEFAULT_PROJECT_ID, "bench", role=role, limits=limits if limited else None
        )
    await database.dispose()
    return plaintext


def wait_for_models(process: subprocess.Popen[bytes], server: Server) -> None:
    """Until the server answers and knows a model.

    Raises:
        RuntimeError: It has ended, or takes too long.
    """
    headers = {"authorization": f"Bearer {server.key}"}
    limit_s = time.monotonic() + START_LIMIT_S
    while time.monotonic() < limit_s and process.poll() is None:
        try:
            reply = httpx.get(f"{server.url}/v1/models", headers=headers)
            if reply.status_code == 200 and reply.json().get("data"):
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    raise RuntimeError(f"{server.name} did not start")
