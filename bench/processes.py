"""What a process has used so far, read from outside: CPU seconds and MiB of memory."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import psutil
from sqlalchemy import text

from store.session import Database

_KIB_A_MIB = 1024.0


def cpu_s(pid: int) -> float:
    """CPU time of a process, user and system, threads that have ended included."""
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system


def cpu_below_s(pids: Iterable[int]) -> float:
    """CPU time of these processes and all below them, those that have ended included."""
    total = 0.0
    for pid in pids:
        root = psutil.Process(pid)
        for one in [root, *root.children(recursive=True)]:
            try:
                total += sum(one.cpu_times()[:4])
            except psutil.NoSuchProcess:
                continue  # its parent has its time now
    return total


def cpu_ns(pid: int) -> int:
    """CPU time of the threads that a process has now, in nanoseconds, as the kernel has it."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            total += int((task / "schedstat").read_text().split()[0])
        except FileNotFoundError:
            continue  # a thread that just ended
    return total


async def postgres_pid(database: Database) -> int:
    """The server's first process, which has started all others."""
    async with database.unit_of_work() as session:
        return psutil.Process(await session.scalar(text("SELECT pg_backend_pid()"))).ppid()


def postgres_cpu_s(pid: int) -> float:
    """CPU of a database server and its processes, those that have ended included."""
    server = psutil.Process(pid)
    total = 0.0
    for process in [server, *server.children(recursive=True)]:
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue  # it has just ended: its server has its time now
        total += times.user + times.system
    ended = server.cpu_times()
    return total + ended.children_user + ended.children_system


def memory_mib(pid: int, field: str) -> float:
    """`VmRSS` (now) or `VmHWM` (the high-water mark) of a process, as proc(5) has them.

    Raises:
        OSError: The process has ended.
    """
    return _status_kib(pid)[field] / _KIB_A_MIB


def private_mib(pid: int) -> float:
    """Memory of a process's own, swapped out or not: neither mapped files nor shared segments.

    Postgres' buffers are one segment, and whatever a backend touched of it counts as resident.

    Raises:
        OSError: The process has ended.
    """
    kib = _status_kib(pid)
    return (kib.get("RssAnon", 0) + kib.get("VmSwap", 0)) / _KIB_A_MIB


def reset_high_water_mark(pid: int) -> None:
    """From now on `VmHWM` counts from the present size (see proc(5), clear_refs)."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def _status_kib(pid: int) -> dict[str, int]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    told = (line.split(":", 1) for line in lines if line.endswith(" kB"))
    return {name: int(value.split()[0]) for name, value in told}
