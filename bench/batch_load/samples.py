"""Memory and CPU of every process of a running installation, sampled from outside."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import psutil

from bench.processes import private_mib
from tests.chaos.installation import Installation

PERIOD_S = 0.25
PARTS = ("gateway", "worker-dispatch", "worker-stages", "beat", "postgres", "valkey")
_SERVANTS = (
    "autovacuum launcher", "autovacuum worker", "background writer", "checkpointer", "io worker",
    "logical replication launcher", "logger", "parallel worker", "walwriter",
)  # fmt: skip
"""Processes of a Postgres that serve no connection."""


def processes(installation: Installation) -> Iterator[tuple[str, psutil.Process]]:
    """Every process of every part with its role: `gateway`, `postgres autovacuum worker`, ..."""
    for part in PARTS:
        for pid in installation.part(part):
            try:
                process = psutil.Process(pid)
                yield part, process
                for child in process.children(recursive=True):
                    yield _role_of_child(part, child), child
            except psutil.Error:
                continue


def _role_of_child(part: str, child: psutil.Process) -> str:
    """Postgres' processes say in their titles what they are; all others of a part are alike."""
    if part != "postgres":
        return f"{part} child"
    title = ""
    with suppress(psutil.Error):  # it may just have ended
        title = " ".join(child.cmdline()).removeprefix("postgres: ").strip()
    return f"postgres {next((kind for kind in _SERVANTS if title.startswith(kind)), 'backend')}"


def cpu_s(installation: Installation) -> dict[str, float]:
    """CPU seconds of each part so far, user and system, processes that have ended included."""
    total: dict[str, float] = defaultdict(float)
    for role, process in processes(installation):
        try:
            times = process.cpu_times()
        except psutil.Error:
            continue
        total[next(part for part in PARTS if role.startswith(part))] += (
            times.user + times.system + times.children_user + times.children_system
        )
    return total


@dataclass
class MemoryWatch:
    """Samples in a thread until told to stop.

    Attributes:
        by_role: For every sample in which a role had a process, the size of its largest, MiB.
    """

    installation: Installation
    by_role: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> MemoryWatch:
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        assert self._thread is not None
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(PERIOD_S):
            largest: dict[str, float] = {}
            for role, process in processes(self.installation):
                try:
                    largest[role] = max(largest.get(role, 0.0), private_mib(process.pid))
                except (OSError, ValueError, IndexError):
                    continue
            for role, mib in largest.items():
                self.by_role[role].append(mib)

    def peaks(self) -> dict[str, float]:
        """The most memory that one process of each role had, MiB."""
        return {role: round(max(sizes), 1) for role, sizes in sorted(self.by_role.items())}

    def thirds(self) -> dict[str, Any]:
        """The same for the first and for the last third of the samples."""
        told = {}
        for role, sizes in sorted(self.by_role.items()):
            third = max(1, len(sizes) // 3)
            told[role] = {
                "first_mib": round(max(sizes[:third]), 1),
                "last_mib": round(max(sizes[-third:]), 1),
            }
        return told
