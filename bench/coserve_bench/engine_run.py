"""Starts one engine, waits until it can be measured, reads its counters, stops it."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import aiohttp

from bench.coserve_bench.systems import STOCK_PLUGINS_CPU, STOCK_PLUGINS_NONE, System
from coserve.local.ports import free_port
from engine_adapter.engine_process import Device, EngineSettings, engine_command

START_TIMEOUT_S = 300.0
PROFILE_TIMEOUT_S = 400.0
STOP_TIMEOUT_S = 20.0


class EngineFailed(RuntimeError):
    """The engine did not start, or ended on its own; the message quotes the end of its log."""


@dataclass(slots=True)
class RunningEngine:
    """An engine that answers.

    Attributes:
        url: Where.
        log: Its log file.
        group: Its process group.
        started_in_s: Time from start to the first healthy answer.
    """

    url: str
    log: Path
    group: int
    started_in_s: float

    async def server_info(self) -> dict[str, Any]:
        """SGLang's own description, with the runtime's counters where the plugin is loaded."""
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"{self.url}/server_info") as response,
        ):
            response.raise_for_status()
            info: dict[str, Any] = await response.json()
            return info

    async def counters(self) -> dict[str, Any]:
        """Counters of the co-serving runtime; empty for stock SGLang."""
        states = (await self.server_info()).get("internal_states") or [{}]
        counters: dict[str, Any] = states[0].get("coserve") or {}
        return counters

    async def progress(self) -> tuple[int, int]:
        """Steps taken and offline tokens computed since start, by our runtime's counters."""
        counters = await self.counters()
        return int(counters["steps"]), int(counters["offline_tokens"])

    async def tokens_computed(self) -> int:
        """Tokens computed, by the engine's own count.

        Our runtime counts first-time offline tokens, prompt and output, without those a stop threw
        away. Stock SGLang logs the prompt tokens of each prefill step, both classes together and
        repeated ones included; :func:`~lab.workload.summary.offline_rate` takes them
        apart.
        """
        counters = await self.counters()
        if counters:
            return int(counters["offline_tokens"]) - int(counters["recomputed_tokens"])
        text = self.log.read_text(errors="replace")
        return sum(map(int, re.findall(r"Prefill batch.*?#new-token: (\d+)", text)))


@asynccontextmanager
async def running_engine(
    settings: EngineSettings, system: System, env: dict[str, str], log: Path
) -> AsyncIterator[RunningEngine]:
    """Run an engine for the length of the block.

    Args:
        settings: Common to all systems.
        system: What is different.
        env: Further environment, for example the targets.
        log: Where its output goes.

    Raises:
        EngineFailed: If it does not become healthy, or its profile does not become ready.
    """
    settings = replace(
        settings,
        port=free_port(),
        chunk_tokens=system.chunk_tokens or settings.chunk_tokens,
        extra_args=(*settings.extra_args, *system.args),
    )
    argv, full_env = engine_command(settings, os.environ)
    full_env |= env | system.env
    if system.stock:
        on_cpu = settings.device is Device.CPU
        full_env["SGLANG_PLUGINS"] = STOCK_PLUGINS_CPU if on_cpu else STOCK_PLUGINS_NONE
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            *argv,
            env=full_env,
            stdout=output,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        engine = RunningEngine(f"http://127.0.0.1:{settings.port}", log, process.pid, 0.0)
        engine.started_in_s = await _wait_healthy(engine, process)
        if not system.stock:
            await wait_profile(engine, process)
        yield engine
    finally:
        await _stop(process)


async def _wait_healthy(engine: RunningEngine, process: asyncio.subprocess.Process) -> float:
    begun = time.monotonic()
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30.0)) as session:
        while time.monotonic() - begun < START_TIMEOUT_S:
            _check_alive(engine, process)
            try:
                async with session.get(f"{engine.url}/health_generate") as response:
                    if response.status == 200:
                        return time.monotonic() - begun
            except (aiohttp.ClientError, TimeoutError):
                pass
            await asyncio.sleep(0.5)
    raise EngineFailed(f"not healthy after {START_TIMEOUT_S:.0f} s\n{log_end(engine.log)}")


async def wait_profile(engine: RunningEngine, process: asyncio.subprocess.Process) -> None:
    """Wait for the profile that the runtime measures in the background when it has none.

    Raises:
        EngineFailed: If it takes too long, or if the engine has no runtime of ours.
    """
    begun = time.monotonic()
    while time.monotonic() - begun < PROFILE_TIMEOUT_S:
        _check_alive(engine, process)
        counters = await engine.counters()
        if not counters:  # SGLang goes on without a plugin that it cannot load
            raise EngineFailed(f"it runs without our scheduler: `make setup-engine`; {engine.log}")
        if (counters.get("profile") or {}).get("state") != "measuring":
            return
        await asyncio.sleep(1.0)
    raise EngineFailed(f"still measuring its profile after {PROFILE_TIMEOUT_S:.0f} s")


def _check_alive(engine: RunningEngine, process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        raise EngineFailed(f"engine ended with {process.returncode}\n{log_end(engine.log)}")


async def _stop(process: asyncio.subprocess.Process) -> None:
    """End the engine's whole process group: it has children."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, sign)
        except ProcessLookupError:
            break
        try:
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await process.wait()
        except TimeoutError:
            continue
    # Children that outlive the parent would keep memory and cores from the next system.
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def log_end(log: Path, lines: int = 15) -> str:
    """The last lines of an engine's log."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
