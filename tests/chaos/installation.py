"""The product under its own supervisor, and the processes of it that can be killed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from coserve.local import postgres
from coserve.local.ports import free_port
from tests.chaos.engine import EngineProcess
from tests.fixtures.supervised import Up, wait_until

GONE_LIMIT_S = 20.0


def wall_s() -> float:
    """Seconds since the epoch, comparable with the database's instants on this machine."""
    return time.time_ns() / 1e9


class Installation:
    """`coserve up` on a state directory of its own, with its own engine or one that is there."""

    def __init__(self, home: Path, fake: EngineProcess | None, **settings: str) -> None:
        self.home = home
        self.fake = fake
        self._settings = settings
        if fake is not None:
            self._settings.setdefault("ENGINE_URLS", fake.url)
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        self.key = ""
        self._up: Up | None = None

    def start(self, limit_s: float = 120.0) -> None:
        """Returns when /statusz says so."""
        if self.fake is not None and self.fake.pid is None:
            self.fake.start()
        self._up = Up(self.home, self._port, **self._settings)
        self.key = self._up.wait_until_ready(limit_s)

    def stop(self) -> None:
        if self._up is not None and self._up.process.poll() is None:
            self._up.end(signal.SIGTERM)
        if self.fake is not None:
            self.fake.stop()

    def said(self) -> str:
        """What the supervisor printed."""
        return self._up.said() if self._up is not None else ""

    @property
    def dsn(self) -> str:
        """The embedded database's address for psycopg."""
        url = postgres.running_url(self.home)
        assert url is not None, "the database is not running"
        return url.replace("+psycopg", "")

    @property
    def engine_port(self) -> int | None:
        """Where the engine listens; none while it is not there, or has only been forked: until
        its exec it has its parent's command line."""
        if self.fake is not None:
            return self.fake.port
        engine = self._part("engine")
        with suppress(psutil.Error, ValueError):
            words = engine.cmdline() if engine is not None else []
            return int(words[words.index("--port") + 1])
        return None

    # --- processes ----------------------------------------------------------------------------

    def watchers(self) -> dict[str, int]:
        """The shim in front of each part that has one now."""
        try:
            state = json.loads((self.home / "run/state.json").read_text())
            return {part["name"]: part["pid"] for part in state["parts"] if part["pid"]}
        except (OSError, ValueError, KeyError):
            return {}

    def _part(self, name: str) -> psutil.Process | None:
        """The process behind a part's shim, if it lives."""
        try:
            return psutil.Process(self.watchers()[name]).children()[0]
        except (KeyError, IndexError, psutil.Error):
            return None

    def part(self, name: str) -> list[int]:
        """The main process of a part: no id while it is down."""
        if name == "engine" and self.fake is not None:
            return [self.fake.pid] if self.fake.pid else []
        process = self._part(name)
        return [process.pid] if process is not None else []

    def children(self, name: str) -> list[int]:
        """What a part has started itself: pool children, backends."""
        process = self._part(name)
        with suppress(psutil.Error):
            return [child.pid for child in process.children()] if process is not None else []
        return []

    def dispatching_children(self) -> list[int]:
        """The pool children that talk to the engine now."""
        found = []
        for pid in self.children("worker-dispatch"):
            with suppress(psutil.Error):
                links = psutil.Process(pid).net_connections("tcp")
                if any(link.raddr and link.raddr.port == self.engine_port for link in links):
                    found.append(pid)
        return found

    def everything(self) -> list[int]:
        """The supervisor, all below it, and the engine."""
        assert self._up is not None
        tree = [process.pid for process in self._up.tree()]
        return tree + self.part("engine") if self.fake is not None else tree

    def parts_down(self) -> list[str]:
        """The parts that are not ready now."""
        try:
            state = json.loads((self.home / "run/state.json").read_text())
        except (OSError, ValueError):
            return ["supervisor"]
        return [part["name"] for part in state["parts"] if part["state"] != "ready"]

    # --- deaths -------------------------------------------------------------------------------

    @staticmethod
    def kill(pids: Sequence[int]) -> None:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def wipe_broker(self) -> None:
        """Whatever the broker had on disk."""
        shutil.rmtree(self.home / "valkey" / "appendonlydir", ignore_errors=True)

    def kill_machine(self) -> None:
        """Everything at once, the supervisor first; returns when nothing is left."""
        assert self._up is not None
        pids = self.everything()
        self.kill(pids)
        self._up.process.wait(10)
        if self.fake is not None:
            self.fake.reap()
        wait_until(lambda: not any(map(_lives, pids)), "all are gone", GONE_LIMIT_S)


def _lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
