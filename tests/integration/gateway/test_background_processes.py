"""A background response while gateway and workers die: it is made once, whoever lives to tell."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from batch.settings import BatchSettings
from batch.worker.commands import worker_commands
from coserve.local.ports import free_port
from store.models import DEFAULT_PROJECT_ID
from store.repositories import key as keys
from store.session import Database
from tests.fakes.engine import FakeSettings
from tests.fakes.server import serving
from tests.fixtures.batches import PATIENCE_S, until
from tests.fixtures.forked import ForkedProcess
from tests.fixtures.response_events import check_response, read_stream
from tests.fixtures.steered_engine import SteeredEngine
from tests.fixtures.workers import installation, workers

MODEL = "m"
DISPATCH_WORKER = "worker-dispatch"


@pytest.fixture
async def engine() -> AsyncIterator[tuple[SteeredEngine, str]]:
    engine = SteeredEngine(FakeSettings(model=MODEL))
    engine.held = True
    async with serving(engine) as url:
        yield engine, url


@pytest.fixture
def settings(
    database_url: str,
    broker_url: str,
    engine: tuple[SteeredEngine, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> BatchSettings:
    for name in [one for one in os.environ if one.startswith("COSERVE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("DATABASE_URL", database_url)
    monkeypatch.setenv("BROKER_URL", broker_url)
    monkeypatch.setenv("ENGINE_URLS", engine[1])
    monkeypatch.setenv("COSERVE_HOME", str(tmp_path))
    return BatchSettings()


@contextmanager
def gateway(port: int, log: Path) -> Iterator[ForkedProcess]:
    """A gateway in a process of its own, with the settings of this one."""
    env = {**os.environ, "COSERVE_PORT": str(port)}
    process = ForkedProcess((sys.executable, "-m", "gateway"), env=env, log=log)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.contract("P-26", "P-27")
@pytest.mark.thorough
@pytest.mark.parametrize("victim", ["gateway", "worker", "pool child"])
async def test_kill_9_while_the_engine_makes_it(
    settings: BatchSettings,
    database: Database,
    engine: tuple[SteeredEngine, str],
    tmp_path: Path,
    victim: str,
) -> None:
    steered, port = engine[0], free_port()
    async with database.unit_of_work() as session:
        _, key = await keys.create(session, DEFAULT_PROJECT_ID, "test")
    http = httpx.AsyncClient(
        base_url=f"http://127.0.0.1:{port}/v1",
        headers={"authorization": f"Bearer {key}"},
        timeout=PATIENCE_S,
    )
    body = {"model": MODEL, "input": "fake:text=survived", "background": True}
    log = tmp_path / "log"
    with workers(installation(settings), log) as started, gateway(port, log) as first:
        await _is_ready(port)
        made = (await http.post("/responses", json=body)).json()
        assert made["status"] == "queued", made
        await until(lambda: steered.running)
        if victim == "gateway":
            first.kill()
            await asyncio.to_thread(first.wait)
            steered.held = False
            with gateway(port, log):
                await _is_ready(port)
                await _is_made_once(http, made)
        else:
            worker = started.processes[DISPATCH_WORKER]
            pids = [child.pid for child in started.children(DISPATCH_WORKER)]
            for pid in pids if victim == "pool child" else [worker.pid]:
                os.kill(pid, signal.SIGKILL)
            steered.held = False
            if victim == "worker":
                await asyncio.to_thread(worker.wait)
                started.start(worker_commands(settings)[0])
            await _is_made_once(http, made)
    await http.aclose()


async def _is_ready(port: int) -> None:
    async with asyncio.timeout(PATIENCE_S), httpx.AsyncClient() as http:
        while True:
            with suppress(httpx.TransportError):
                if (await http.get(f"http://127.0.0.1:{port}/statusz")).status_code == 200:
                    return
            await asyncio.sleep(0.05)


async def _is_made_once(http: httpx.AsyncClient, made: dict[str, Any]) -> None:
    """Followed to its end by a stream that begins after the death; told the same by everyone."""
    path = f"/responses/{made['id']}"
    raw = (await http.get(path, params={"stream": "true"})).content
    told = read_stream(raw).finish()
    found = (await http.get(path)).json()
    check_response(found)
    assert found == told
    assert found["status"] == "completed"
    assert [item["content"][0]["text"] for item in found["output"]] == ["survived"]
    assert (await http.get("/batches")).json()["data"] == []
