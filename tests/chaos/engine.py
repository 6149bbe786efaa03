"""The engine of a chaos run, killed and started again at its address: a fake one, or a vLLM."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import httpx

from coserve.local.ports import free_port
from tests.fixtures.supervised import ROOT
from tests.fixtures.vllm import Vllm

START_LIMIT_S = 30.0


class EngineProcess(Protocol):
    """An engine that the run starts itself."""

    port: int
    journal: Path | None

    @property
    def url(self) -> str: ...

    @property
    def pid(self) -> int | None:
        """Of its main process, while it lives."""

    def start(self) -> None:
        """Returns when the engine answers."""

    def reap(self) -> None:
        """After a kill: collect the process, and end what it has left."""

    def stop(self) -> None: ...


class VllmProcess:
    """A real vLLM on the CPU; it keeps no journal."""

    journal: Path | None = None

    def __init__(self, folder: Path) -> None:
        self._vllm = Vllm(folder / "vllm.log")
        self.port, self.url = self._vllm.port, self._vllm.url

    @property
    def pid(self) -> int | None:
        return self._vllm.pid

    def start(self) -> None:
        self._vllm.start()

    def reap(self) -> None:
        self._vllm.kill()

    def stop(self) -> None:
        self._vllm.kill()


class FakeEngineProcess:
    """A fake engine behind HTTP, one process; its journal goes on over every restart.

    Args:
        more: Options of `tests.fakes.server`.
    """

    def __init__(
        self,
        folder: Path,
        *,
        latency_ms: float,
        max_running: int,
        context_tokens: int = 2048,
        more: Sequence[str] = (),
    ) -> None:
        self.port = free_port()
        self.journal: Path | None = folder / "engine-journal.jsonl"
        self._argv = [
            sys.executable, "-m", "tests.fakes.server",
            "--port", str(self.port), "--latency-ms", str(latency_ms),
            "--max-running", str(max_running), "--journal", str(self.journal),
            "--context-tokens", str(context_tokens), *more,
        ]  # fmt: skip
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int | None:
        return self.process.pid if self.process and self.process.poll() is None else None

    def start(self) -> None:
        """Returns when the engine answers."""
        self.process = subprocess.Popen(self._argv, cwd=ROOT, stdout=subprocess.DEVNULL)
        until = time.monotonic() + START_LIMIT_S
        while time.monotonic() < until:
            assert self.process.poll() is None, "the fake engine ended"
            try:
                if httpx.get(f"{self.url}/health", timeout=1).status_code == 200:
                    return
            except httpx.HTTPError:
                time.sleep(0.02)
        raise AssertionError("the fake engine does not answer")

    def reap(self) -> None:
        """After a kill: collect the process."""
        if self.process is not None:
            self.process.wait(10)

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(10)
