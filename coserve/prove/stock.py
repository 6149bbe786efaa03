"""The same engine without coserve: stock SGLang, at its own priorities, for the length of a run."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import httpx

from coserve.local.plans import EngineInstall
from coserve.local.ports import free_port
from coserve.prove.clients import Server
from engine_adapter.engine_process import Device, EngineSettings, engine_command

START_LIMIT_S: Final = 600.0
STOP_LIMIT_S: Final = 20.0
PRIORITIES: Final = (
    "--enable-priority-scheduling",
    "--default-priority-value",
    "0",
    "--priority-scheduling-preemption-threshold",
    "0",
)
# SGLang's CPU engine needs our start-up fixes; no scheduler.
PLUGINS_CPU, PLUGINS_CUDA = "coserve_cpu", "none"


class StockFailed(Exception):
    """It did not start, for example because a GPU's memory is taken; quotes the end of its log."""


@contextmanager
def stock_engine(install: EngineInstall, log: Path) -> Iterator[Server]:
    """Run it for the length of the block."""
    device = Device.CUDA if install.cuda else Device.CPU
    settings = EngineSettings(
        python=install.python,
        model_dir=install.model_dir,
        port=free_port(),
        device=device,
        extra_args=PRIORITIES,
    )
    argv, env = engine_command(settings, os.environ)
    env["SGLANG_PLUGINS"] = PLUGINS_CUDA if install.cuda else PLUGINS_CPU
    with log.open("wb") as output:
        process = subprocess.Popen(
            argv, env=env, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
    root = f"http://127.0.0.1:{settings.port}"
    try:
        _wait(process, f"{root}/health", log)
        yield Server(f"{root}/v1", settings.served_name, priorities=True)
    finally:
        _stop(process)


def _wait(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    limit = time.monotonic() + START_LIMIT_S
    while time.monotonic() < limit:
        if process.poll() is not None:
            break
        try:
            if httpx.get(url, timeout=5).status_code == 200:
                return
        except httpx.HTTPError:
            pass
        time.sleep(0.5)
    said = " | ".join(log.read_text(errors="replace").splitlines()[-3:])
    raise StockFailed(f"stock SGLang did not start: {said[:500]}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End its whole process group: it has children that would keep memory and cores."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, sign)
            process.wait(STOP_LIMIT_S)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue
