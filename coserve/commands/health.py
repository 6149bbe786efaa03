"""Whether a container's worker or beat does its work: what its health check asks.

A worker that is there may still hang. So it must answer a ping through the broker, which its own
loop does, and each process of its pool must run: none stopped, none dead and left over. A task that
hangs inside a running process has limits of its own (`batch.worker.app`, `batch.lease`).
"""

from __future__ import annotations

import asyncio
import re
import socket
from pathlib import Path
from typing import Any, Final

from kombu.exceptions import OperationalError

from batch.settings import BatchSettings
from batch.worker.app import make_app

PING_LIMIT_S: Final = 10.0
_GONE: Final = frozenset("TtZX")
"""States of /proc/PID/stat: stopped, traced, dead and not collected, dead."""


def worker_is_well(settings: BatchSettings) -> bool:
    """Whether the first process of this container is a worker that works (it runs one part)."""
    name = worker_name(1)
    return name is not None and pool_runs(1) and answers(make_app(settings), name)


def beat_is_well(settings: BatchSettings) -> bool:
    """Whether the first process of this container is beat, and the broker answers."""
    return beat_is_main_process() and not asyncio.run(settings.broker.fault(PING_LIMIT_S))


def beat_is_main_process(proc: Path = Path("/proc")) -> bool:
    """Whether the first process of this container is beat."""
    try:
        said = (proc / "1" / "cmdline").read_text(errors="replace")
    except OSError:
        return False
    # Celery calls itself `[celery beat] …` once it runs.
    return {"celery", "beat"} <= set(re.split(r"[\0 \[\]]+", said))


def worker_name(main_pid: int, proc: Path = Path("/proc")) -> str | None:
    """What the worker behind a process calls itself; none where it is no worker."""
    try:
        words = (proc / str(main_pid) / "cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return None
    for word in words.replace(" ", "\0").split("\0"):
        if word.startswith("--hostname="):
            return word.removeprefix("--hostname=").replace("%h", socket.gethostname())
    return None


def answers(app: Any, name: str) -> bool:
    """Whether the worker's loop hears of a ping and answers it."""
    try:
        replies = app.control.ping(destination=[name], timeout=PING_LIMIT_S)
    except (OperationalError, OSError):
        return False
    return any(name in reply for reply in replies)


def pool_runs(main_pid: int, proc: Path = Path("/proc")) -> bool:
    """Whether the worker has processes, and each of them runs or waits."""
    try:
        children = (proc / f"{main_pid}/task/{main_pid}/children").read_text().split()
        states = [
            (proc / child / "stat").read_text().rpartition(")")[2].split()[0] for child in children
        ]
    except OSError:  # one has just ended: its place is filled within a second
        return False
    return bool(states) and not _GONE & set(states)
