"""Engines without the price of their imports: forks of the process that has imported SGLang.

For tests of what an engine answers. How a user's engine starts is shown by those of the session's
engine and of the whole product, which are started by the product's command line.
"""

from __future__ import annotations

import os
import select
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path

import psutil

from engine_adapter.engine_process import EngineSettings
from tests.engine.engine_scripts import ordered
from tests.fixtures import processor
from tests.fixtures.engine import RunningEngine, running_engine


class ForkedEngine:
    """`python -m …` in a session of its own; what is used of `subprocess.Popen`."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], cwd: Path, log: Path) -> None:
        assert argv[1] == "-m", argv
        order = {"engine": list(argv[2:]), "env": dict(env), "cwd": str(cwd), "log": str(log)}
        self.pid: int = ordered(order)["pid"]
        self._ended = os.pidfd_open(self.pid)
        self._code: int | None = None

    def send_signal(self, number: int) -> None:
        """As a user does; nothing when it has ended."""
        with suppress(ProcessLookupError, psutil.NoSuchProcess):
            self._count()
            os.kill(self.pid, number)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; the code it ended with."""
        if self._code is None:
            waiting = select.poll()
            waiting.register(self._ended, select.POLLIN)
            if not waiting.poll(None if timeout is None else timeout * 1000):
                raise subprocess.TimeoutExpired(f"engine {self.pid}", timeout or 0.0)
            os.close(self._ended)
            self._code = int(ordered({"reap": self.pid})["code"])
        return self._code

    def _count(self) -> None:
        """Its processor seconds: it is no child of this process."""
        leader = psutil.Process(self.pid)
        for one in (leader, *leader.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                processor.count(sum(one.cpu_times()[:2]))


def forked_engine(
    settings: EngineSettings, folder: Path, **overrides: str
) -> AbstractContextManager[RunningEngine]:
    """See `running_engine`."""
    return running_engine(settings, folder, ForkedEngine, **overrides)
