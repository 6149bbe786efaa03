"""Postgres and Valkey of a run, behind gates that can be shut: what can go wrong with them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import redis

from coserve.local import postgres, valkey
from coserve.local.part import ManagedProcess
from tests.fixtures.commit_proxy import CommitProxy, commit_proxy
from tests.fixtures.servers import wait_for
from tests.fixtures.tcp_gate import TcpGate, tcp_gate

DATABASE = "app"


@dataclass
class Servers:
    """Both servers and the ways to them."""

    home: Path
    postgres_files: postgres.PostgresFiles
    valkey_files: valkey.ValkeyFiles
    processes: dict[str, ManagedProcess]
    to_postgres: CommitProxy
    to_valkey: TcpGate

    @property
    def broker_url(self) -> str:
        port, ours = self.valkey_files.port, self.to_valkey.port
        return self.valkey_files.url.replace(f":{port}/", f":{ours}/")

    @property
    def direct_url(self) -> str:
        """Of the database, past the gate."""
        return self.postgres_files.url(DATABASE)

    def pids(self, name: str) -> list[int]:
        """The server and what it has forked."""
        try:
            (server,) = psutil.Process(self.processes[name].pid).children()[:1]
            return [server.pid, *(child.pid for child in server.children(recursive=True))]
        except (psutil.Error, ValueError):
            return []

    def start(self, name: str) -> None:
        """Start it, again where it was killed; returns when it answers."""
        if name == "postgres":
            postgres.stop_leftover(self.postgres_files)
            command = postgres.command(self.postgres_files, self.home / "postgres.log")
            process = ManagedProcess(command)
            wait_for(lambda: postgres.is_ready(self.postgres_files), process)
        else:
            process = ManagedProcess(valkey.command(self.valkey_files, self.home / "valkey.log"))
            wait_for(lambda: valkey.is_ready(self.valkey_files), process)
        self.processes[name] = process

    def give_broker_room(self, *, some: bool) -> None:
        """Let Valkey take no more, or again all it wants; it may be dead just now."""
        with suppress(redis.RedisError), redis.Redis.from_url(self.valkey_files.url) as client:
            client.config_set("maxmemory", 0 if some else 1)

    def wipe_broker(self) -> None:
        """Whatever Valkey had on disk; it must not run."""
        for kept in (self.valkey_files.directory / "appendonlydir").glob("*"):
            kept.unlink()


@asynccontextmanager
async def servers(home: Path) -> AsyncIterator[Servers]:
    """Both, while the block runs."""
    home.mkdir(mode=0o755)
    async with AsyncExitStack() as stack:
        postgres_files = await asyncio.to_thread(postgres.prepare, home, durable=False)
        valkey_files = valkey.prepare(home)
        to_postgres = await stack.enter_async_context(commit_proxy(postgres_files.url(DATABASE)))
        to_postgres.share = 0.0
        to_valkey = await stack.enter_async_context(tcp_gate(valkey_files.port))
        made = Servers(home, postgres_files, valkey_files, {}, to_postgres, to_valkey)
        try:
            for name in ("postgres", "valkey"):
                await asyncio.to_thread(made.start, name)
            await asyncio.to_thread(postgres.ensure_database, postgres_files, DATABASE)
            yield made
        finally:
            for process in made.processes.values():
                await asyncio.to_thread(process.stop)
