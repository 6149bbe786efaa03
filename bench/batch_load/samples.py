"""Memory and CPU of every process of a running installation, sampled from outside."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from tests.chaos.installation import Installation

PERIOD_S = 0.25
PARTS = ("gateway", "worker-dispatch", "worker-stages", "beat", "postgres", "valkey")
_MIB = 1024.0


def processes(installation: Installation) -> Iterator[tuple[str, psutil.Process]]:
    """Every process of every part with its role: `postgres`, `postgres child`, ..."""
    for part in PARTS:
        for pid in installation.part(part):
            try:
                process = psutil.Process(pid)
                yield part, process
                for child in process.children(recursive=True):
                    yield f"{part} child", child
            except psutil.Error:
                continue


def cpu_s(installation: Installation) -> dict[str, float]:
    """CPU seconds of each part so far, user and system, processes that have ended included."""
    total: dict[str, float] = defaultdict(float)
    for role, process in processes(installation):
        try:
            times = process.cpu_times()
        except psutil.Error:
            continue
        total[role.removesuffix(" child")] += (
            times.user + times.system + times.children_user + times.children_system
        )
    return total


def private_mib(pid: int) -> float:
    """Resident memory without shared segments: Postgres' buffers are one, counted in each backend.

    Raises:
        OSError: The process has ended.
    """
    told = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    kib = {name: int(told.get(name, "0").split()[0]) for name in ("VmRSS", "RssShmem")}
    return (kib["VmRSS"] - kib["RssShmem"]) / _MIB


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
