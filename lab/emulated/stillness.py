"""Whether every thread of some processes waits, so that nothing happens until somebody is woken.

A thread that is sent something is runnable before the sender can go to sleep: the kernel wakes it
in the sender's system call. So where all threads sleep at one instant, nothing is under way between
them. One look cannot see that instant, for it reads one thread after another. Two can: a thread
that slept at both and has not run in between has slept at every instant between them::

    look 1   A sleeps   B sleeps                 A has not run, B has not run:
    look 2                         A     B       at the end of look 1 both slept
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from threading import get_native_id

Thread = tuple[int, int]
PROC = Path("/proc")
SLEEPS = frozenset((b"S", b"Z", b"X", b"I"))


class Unwatchable(RuntimeError):
    """This kernel does not count how often a thread has run."""


def processes_of_group(group: int) -> list[int]:
    """Processes of a process group."""
    found = []
    for folder in PROC.glob("[0-9]*"):
        try:
            stat = (folder / "stat").read_bytes()
        except OSError:  # it has ended
            continue
        if int(stat[stat.rfind(b")") + 1 :].split()[2]) == group:
            found.append(int(folder.name))
    return found


class Stillness:
    """Watches the threads of some processes, all but the caller's own.

    Args:
        processes: Their ids.

    Raises:
        Unwatchable: If the kernel does not say enough.
    """

    def __init__(self, processes: Iterable[int]) -> None:
        if not (PROC / "self" / "schedstat").exists():
            raise Unwatchable("virtual time needs /proc/PID/schedstat, which this kernel has not")
        self._processes = list(processes)
        self._files: dict[Thread, tuple[int, int]] = {}
        self._at_work: list[Thread] = []

    def __call__(self) -> bool:
        """Whether all slept at one instant since the call began."""
        first = self._poll()
        return first is not None and self._poll() == first

    def close(self) -> None:
        for files in self._files.values():
            for file in files:
                os.close(file)
        self._files.clear()

    def _poll(self) -> dict[Thread, bytes] | None:
        """How often each thread has run; None if one does not sleep."""
        own = get_native_id()
        seen: dict[Thread, bytes] = {}
        for thread in chain(self._at_work, *map(_threads, self._processes)):
            if thread[1] == own:
                continue
            try:
                state, runs = self._read(thread)
            except OSError:  # it has ended while it was looked at
                self._forget(thread)
                self._at_work = []
                return None
            if state not in SLEEPS:
                self._at_work = [thread]  # looked at first the next time: it often still is
                return None
            seen[thread] = runs
        for thread in self._files.keys() - seen.keys():
            self._forget(thread)
        return seen

    def _read(self, thread: Thread) -> tuple[bytes, bytes]:
        if thread not in self._files:
            folder = f"{PROC}/{thread[0]}/task/{thread[1]}"
            stat = os.open(f"{folder}/stat", os.O_RDONLY)
            try:
                self._files[thread] = stat, os.open(f"{folder}/schedstat", os.O_RDONLY)
            except OSError:
                os.close(stat)
                raise
        stat, schedstat = self._files[thread]
        # "pid (name) S ..."; a name has up to fifteen bytes.
        told = os.pread(stat, 64, 0)
        at = told.rfind(b")")
        return told[at + 2 : at + 3], os.pread(schedstat, 64, 0)

    def _forget(self, thread: Thread) -> None:
        for file in self._files.pop(thread, ()):
            os.close(file)


def _threads(process: int) -> list[Thread]:
    try:
        with os.scandir(f"/proc/{process}/task") as entries:
            return [(process, int(entry.name)) for entry in entries]
    except OSError:  # it has ended
        return []
