"""One supervisor per state directory, and never beside the remains of the last one.

Two files, both locked by the kernel, so that a crash of any kind lets go of them:

- `supervisor.lock` is held by the supervisor alone and says who it is;
- `children.lock` is handed to every shim and stays locked until the last of them has ended. A new
  start after a `kill -9` waits for it, so that two Postgres never share a data directory.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path

from coserve.local.errors import LocalError


class AlreadyRunningError(LocalError):
    """Another supervisor holds the state directory."""

    def __init__(self, pid: int | None, url: str | None) -> None:
        who = f" (process {pid})" if pid else ""
        where = f": {url}" if url else ""
        super().__init__(
            f"coserve is running already{who}{where}. Ctrl-C stops it where it was started; "
            "another one needs COSERVE_HOME and COSERVE_PORT of its own."
        )
        self.pid = pid
        self.url = url


class LeftoversError(LocalError):
    """Processes of the last run do not end."""


@dataclass(frozen=True)
class Owner:
    """Who holds a state directory."""

    pid: int | None
    url: str | None


def _open(path: Path) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _try_lock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read_owner(descriptor: int) -> Owner:
    try:
        read = json.loads(os.pread(descriptor, 4096, 0))
        return Owner(int(read["pid"]), str(read["url"]))
    except (ValueError, KeyError, TypeError):
        return Owner(None, None)


def find_owner(home: Path) -> Owner | None:
    """Who runs on `home` now, or None."""
    path = home / "run" / "supervisor.lock"
    if not path.exists():
        return None
    descriptor = _open(path)
    try:
        free = _try_lock(descriptor, fcntl.LOCK_SH)
        return None if free else _read_owner(descriptor)
    finally:
        os.close(descriptor)


class HomeLock:
    """The two locks of one supervisor, held until `release` or the end of the process."""

    def __init__(self, home: Path, url: str) -> None:
        """Take the supervisor's lock. Raises AlreadyRunningError."""
        run = home / "run"
        self._own = _open(run / "supervisor.lock")
        if not _try_lock(self._own, fcntl.LOCK_EX):
            owner = _read_owner(self._own)
            os.close(self._own)
            raise AlreadyRunningError(owner.pid, owner.url)
        os.ftruncate(self._own, 0)
        os.pwrite(self._own, json.dumps({"pid": os.getpid(), "url": url}).encode(), 0)
        self.children_fd = _open(run / "children.lock")
        """Inherited by every shim: as long as one lives, the lock is held."""

    def children_are_gone(self) -> bool:
        """Whether nothing of an earlier run lives; from then on the lock is ours to hand on."""
        return _try_lock(self.children_fd, fcntl.LOCK_EX)

    def wait_for_children(self, limit_s: float) -> None:
        """Wait until the last run's processes have ended. Raises LeftoversError."""
        limit = time.monotonic() + limit_s
        while not self.children_are_gone():
            if time.monotonic() > limit:
                raise LeftoversError("processes of the last run do not end: stop them, then retry")
            time.sleep(0.05)

    def release(self) -> None:
        os.close(self.children_fd)
        os.close(self._own)
