"""How a pool child learns that its worker is shutting down.

Celery's warm shutdown waits for running tasks and tells them nothing; a dispatcher would keep it
waiting for as long as there is work. So the worker holds the write end of a pipe, its children
the read end: closing it, by shutdown or by death, is the signal.

    worker ──(holds w)──► worker_shutting_down: close(w) ──► children read EOF ──► drain
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager


class DrainPipe:
    """One pipe per worker process, made before its children are forked."""

    def __init__(self) -> None:
        self._read_fd, self._write_fd = os.pipe()
        self._owner_pid = os.getpid()

    def signal(self) -> None:
        """In the worker: tell every child."""
        self._close_writer()

    def enter_child(self) -> None:
        """In a child, after the fork: give up the write end, so that EOF can be seen."""
        if os.getpid() != self._owner_pid:
            self._close_writer()

    @contextmanager
    def watched(self) -> Iterator[asyncio.Event]:
        """An event of the running loop that is set when the signal comes."""
        drain = asyncio.Event()
        loop = asyncio.get_running_loop()

        def on_end() -> None:
            drain.set()
            loop.remove_reader(self._read_fd)

        loop.add_reader(self._read_fd, on_end)
        try:
            yield drain
        finally:
            loop.remove_reader(self._read_fd)

    def _close_writer(self) -> None:
        if self._write_fd >= 0:
            os.close(self._write_fd)
            self._write_fd = -1
