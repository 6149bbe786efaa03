"""A fleet on one machine: gateways, worker hosts and engines, each a process group of its own."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from batch.settings import BatchSettings
from batch.worker.commands import beat_command, worker_commands
from coserve.local.ports import free_port
from tests.fixtures.forked import ForkedProcess

POLL_INTERVAL_S = 0.1
TOKEN = "fleet-engine-token"


class Part:
    """One process, started in a group of its own so that all below it can be killed."""

    def __init__(self, name: str, argv: list[str], env: Mapping[str, str], log: Path) -> None:
        self.name = name
        self._argv = argv
        self._env = {**env}
        self._log = log
        self.process: ForkedProcess | None = None

    def start(self) -> None:
        self.process = ForkedProcess(self._argv, env=self._env, log=self._log)

    async def stop(self, limit_s: float) -> int:
        """SIGTERM, as an orchestrator does; its exit status."""
        assert self.process is not None
        self.process.terminate()
        return await asyncio.to_thread(self.process.wait, limit_s)

    async def kill(self) -> None:
        """kill -9 of all of it, whatever it has started included."""
        if self.process is None:
            return
        below = _below(self.process.pid)
        self.process.kill()
        for pid in below:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        await asyncio.to_thread(self.process.wait)


def _below(pid: int) -> list[int]:
    import psutil

    with suppress(psutil.Error):
        return [child.pid for child in psutil.Process(pid).children(recursive=True)]
    return []


@dataclass
class Gateways:
    """The gateways, and those of them that a load balancer would use now."""

    parts: dict[str, Part]
    ready: list[str] = field(default_factory=list)
    _num_sent: int = 0

    def next(self) -> str | None:
        self._num_sent += 1
        return self.ready[self._num_sent % len(self.ready)] if self.ready else None

    async def look(self) -> None:
        async with httpx.AsyncClient(timeout=2) as http:
            while True:
                self.ready = [url for url in self.parts if await _is_ready(http, url)]
                await asyncio.sleep(POLL_INTERVAL_S)


async def _is_ready(http: httpx.AsyncClient, url: str) -> bool:
    try:
        return (await http.get(f"{url}/readyz")).status_code == 200
    except httpx.TransportError:
        return False


@dataclass
class Installation:
    """Everything that is started; addresses of servers come from outside."""

    folder: Path
    environment: dict[str, str]
    engine_command: Callable[[int], list[str]]
    gateways: Gateways = field(default_factory=lambda: Gateways({}))
    engines: dict[str, Part] = field(default_factory=dict)
    hosts: list[list[Part]] = field(default_factory=list)

    def add_gateway(self) -> Part:
        port = free_port()
        env = self.environment | {
            "COSERVE_PORT": str(port),
            "COSERVE_ENGINE_TOKEN": TOKEN,
            "COSERVE_SHUTDOWN_DELAY_S": str(10 * POLL_INTERVAL_S),
            "COSERVE_SHUTDOWN_GRACE_S": "120",
            "COSERVE_LOG_LEVEL": "warning",
        }
        url = f"http://127.0.0.1:{port}"
        self.gateways.parts[url] = self._part(f"gateway-{port}", ["-m", "gateway"], env)
        return self.gateways.parts[url]

    def add_engine(self, command: Callable[[int], list[str]] | None = None) -> Part:
        """One that registers itself."""
        port = free_port()
        url = f"http://127.0.0.1:{port}"
        env = self.environment | {
            "COSERVE_REGISTER_URLS": ",".join(self.gateways.parts),
            "COSERVE_ENGINE_URL": url,
            "COSERVE_ENGINE_TOKEN": TOKEN,
            "COSERVE_ENGINE_DRAIN_S": "120",
        }
        argv = ["-m", "engine_adapter.registration", "--", *(command or self.engine_command)(port)]
        self.engines[url] = self._part(f"engine-{port}", argv, env)
        return self.engines[url]

    def add_worker_host(self) -> list[Part]:
        """Workers and beat with a folder of their own; files are in the bucket."""
        home = self.folder / f"host-{len(self.hosts)}"
        home.mkdir()
        env = self.environment | {"COSERVE_HOME": str(home)}
        settings = BatchSettings()
        commands = [*worker_commands(settings), beat_command(settings)]
        host = [
            Part(f"{home.name}-{one.name}", [*one.argv], env | one.env, self._log(home.name))
            for one in commands
        ]
        self.hosts.append(host)
        return host

    async def end(self) -> None:
        for part in self._parts():
            await part.kill()

    def logs(self) -> str:
        """The end of each log, for when it fails."""
        return "\n".join(
            f"--- {path.name}\n{path.read_text()[-1500:]}" for path in self.folder.glob("*.log")
        )

    def _parts(self) -> list[Part]:
        hosts = [part for host in self.hosts for part in host]
        return [*self.gateways.parts.values(), *self.engines.values(), *hosts]

    def _part(self, name: str, arguments: list[str], env: dict[str, str]) -> Part:
        return Part(name, [sys.executable, *arguments], env, self._log(name))

    def _log(self, name: str) -> Path:
        return self.folder / f"{name}.log"
