"""Several processes of one gateway behind one port (`COSERVE_GATEWAY_PROCESSES`).

The parent serves nothing: it binds a socket of the port for each process, starts them, starts
again what dies or hangs, and hands signals on. The kernel spreads connections over the sockets. A
socket outlives its process, so who connects while one is started anew waits for it and is not
refused.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import secrets
import signal
import socket
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gateway.settings import GatewaySettings
from service.process_ties import end_with_parent

PAUSE_S: Final = 1.0
"""Between a process' end and its next start."""

POLL_INTERVAL_S: Final = 1.0
HUNG_POLLS: Final = 20
"""A process whose loop has not run for so many polls of its parent hangs. Polls, not seconds: where
the whole host stood still, none of them was missed."""

_BACKLOG: Final = 2048

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Process:
    """What a process of several is told on its command line.

    Attributes:
        number: From 0; the label of its metrics.
        listener: File descriptor of its socket.
        parent: The parent's process id.
        folder: Where each process answers the others for its metrics.
    """

    number: int
    listener: int
    parent: int
    folder: Path

    @classmethod
    def of(cls, arguments: list[str]) -> Process | None:
        """From a command line; none if the gateway is to be started whole."""
        if not arguments:
            return None
        *numbers, folder = arguments
        number, listener, parent = map(int, numbers)
        return cls(number, listener, parent, Path(folder))

    @property
    def arguments(self) -> list[str]:
        """Its command line."""
        return [*map(str, (self.number, self.listener, self.parent)), str(self.folder)]

    @property
    def door(self) -> Path:
        """The socket at which it tells its metrics; it is there once the process serves."""
        return self.folder / f"{self.number}.sock"

    def beat(self) -> None:
        """Say that its loop runs: the parent looks when the door was last touched."""
        with suppress(OSError):
            os.utime(self.door)

    def beaten_at_ns(self) -> int | None:
        """When it last said so; none before it serves."""
        with suppress(OSError):
            return self.door.stat().st_mtime_ns
        return None

    def bind_life(self) -> None:
        """End with the parent, however that ends."""
        if not end_with_parent(self.parent):
            sys.exit(1)


def share_of(settings: GatewaySettings) -> GatewaySettings:
    """A process' part of what the whole gateway may have, rounded up."""
    num = settings.gateway_processes
    divided = {
        name: math.ceil(getattr(settings, name) / num)
        for name in (
            "max_in_flight",
            "max_connections",
            "max_connections_per_address",
            "unknown_keys_per_minute",
            "body_memory_bytes",
        )
    }
    divided["body_memory_bytes"] = max(divided["body_memory_bytes"], settings.body_limit_bytes)
    return settings.model_copy(update=divided)


class Gateway:
    """The processes of one gateway, seen from their parent."""

    def __init__(self, settings: GatewaySettings, folder: Path) -> None:
        self._settings = settings
        self._folder = folder
        self._sockets = listen(settings.host, settings.port, settings.gateway_processes)
        self._running: dict[int, asyncio.subprocess.Process] = {}
        self._stopping = asyncio.Event()
        self._environment = dict(os.environ)
        if not settings.secret:
            # Sessions of the dashboard are known to every process.
            self._environment["COSERVE_SECRET"] = secrets.token_hex(32)

    async def run(self) -> int:
        """Serve until a signal comes; the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop, number)
        numbers = range(len(self._sockets))
        codes = await asyncio.gather(*(self._keep(number) for number in numbers))
        return max(codes)

    async def _keep(self, number: int) -> int:
        """Keep one process running; its exit code once the gateway stops."""
        listener = self._sockets[number].fileno()
        told = Process(number, listener, os.getpid(), self._folder)
        while True:
            told.door.unlink(missing_ok=True)
            process = self._running[number] = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "gateway", *told.arguments,
                env=self._environment, pass_fds=[listener], start_new_session=True,
            )  # fmt: skip
            code = await self._until_it_ends(told, process)
            del self._running[number]
            if self._stopping.is_set():
                return abs(code)
            logger.error("process %d of the gateway has ended with %d", number, code)
            if not told.door.exists():
                # It never served, and would not the next time either.
                self._stop(signal.SIGTERM)
                return abs(code) or 1
            try:
                async with asyncio.timeout(PAUSE_S):
                    await self._stopping.wait()
                return 0
            except TimeoutError:
                pass

    async def _until_it_ends(self, told: Process, process: asyncio.subprocess.Process) -> int:
        """Its exit code; one that hangs is killed, but for when it is to end by itself."""
        ending = asyncio.ensure_future(process.wait())
        seen_ns, num_silent = None, 0
        while not (await asyncio.wait([ending], timeout=POLL_INTERVAL_S))[0]:
            beaten_ns = told.beaten_at_ns()
            is_silent = beaten_ns is not None and beaten_ns == seen_ns
            num_silent = num_silent + 1 if is_silent and not self._stopping.is_set() else 0
            seen_ns = beaten_ns
            if num_silent >= HUNG_POLLS:
                logger.error("process %d of the gateway hangs", told.number)
                process.kill()
                break
        return await ending

    def _stop(self, number: int) -> None:
        if not self._stopping.is_set():
            self._stopping.set()
            # The processes close their own then; while one of ours is open, it would be listened
            # at and nobody would answer.
            asyncio.get_running_loop().call_later(self._settings.shutdown_delay_s, self._close)
        for process in self._running.values():
            process.send_signal(number)

    def _close(self) -> None:
        for one in self._sockets:
            one.close()


def listen(host: str, port: int, number: int) -> list[socket.socket]:
    """So many listening sockets of one port."""
    family, _, _, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    made = []
    for _ in range(number):
        one = socket.socket(family, socket.SOCK_STREAM)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        one.bind(address)
        one.listen(_BACKLOG)
        address = one.getsockname()
        made.append(one)
    return made


def serve_in_processes(settings: GatewaySettings) -> int:
    """Run the gateway's processes to their end; the exit code."""
    with tempfile.TemporaryDirectory(prefix="coserve-gateway-") as folder:

        async def run() -> int:
            return await Gateway(settings, Path(folder)).run()

        return asyncio.run(run())
