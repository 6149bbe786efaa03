"""The gateway as a process: what SIGTERM does to running streams, what an upload takes."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from bench.processes import memory_mib, reset_high_water_mark
from bench.upload import BOUNDARY, UPLOAD_BYTES, form
from coserve.local.ports import free_port
from store.models import DEFAULT_PROJECT_ID
from store.repositories import key as keys
from store.session import Database
from tests.fakes.client import FakeEngine, FakeSettings
from tests.fakes.server import serving
from tests.fixtures.forked import ForkedProcess

GRACE_S = 6
UPLOAD_MEMORY_MIB = 64


@dataclass(frozen=True)
class Running:
    url: str
    key: str
    process: ForkedProcess
    engine: FakeEngine


@pytest.fixture
async def running(
    database: Database, database_url: str, broker_url: str, tmp_path: Path
) -> AsyncIterator[Running]:
    async with database.unit_of_work() as session:
        _, key = await keys.create(session, DEFAULT_PROJECT_ID, "test")
    engine, port = FakeEngine(FakeSettings(model="m")), free_port()
    async with serving(engine) as engine_url:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("COSERVE_")} | {
            "DATABASE_URL": database_url,
            "BROKER_URL": broker_url,
            "ENGINE_URLS": engine_url,
            "COSERVE_HOME": str(tmp_path),
            "COSERVE_PORT": str(port),
            "COSERVE_SHUTDOWN_GRACE_S": str(GRACE_S),
        }
        argv = (sys.executable, "-m", "gateway")
        process = ForkedProcess(argv, env=environment, log=tmp_path / "gateway.log")
        url = f"http://127.0.0.1:{port}"
        try:
            await until_ready(url)
            yield Running(url, key, process, engine)
        finally:
            process.kill()
            await asyncio.to_thread(process.wait)


async def until_ready(url: str) -> None:
    async with asyncio.timeout(60), httpx.AsyncClient() as http:
        while True:
            try:
                if (await http.get(f"{url}/statusz")).status_code == 200:
                    return
            except httpx.TransportError:
                pass
            await asyncio.sleep(0.05)


async def stream_over_sigterm(running: Running, prompt: str) -> bytes:
    """What a stream gets in all, when the gateway is told to stop after its first bytes."""
    body: dict[str, Any] = {
        "model": "m", "stream": True, "messages": [{"role": "user", "content": prompt}],
    }  # fmt: skip
    received = b""
    headers = {"authorization": f"Bearer {running.key}"}
    async with (
        httpx.AsyncClient(headers=headers, timeout=30) as http,
        http.stream("POST", f"{running.url}/v1/chat/completions", json=body) as reply,
    ):
        try:
            async for data in reply.aiter_bytes():
                if not received:
                    running.process.send_signal(signal.SIGTERM)
                received += data
        except httpx.RemoteProtocolError:
            pass
    return received


async def test_a_stream_that_outlives_the_grace_is_cut_and_its_slot_is_free(
    running: Running,
) -> None:
    received = await stream_over_sigterm(running, "fake:tokens=10 fake:token_ms=60000")
    assert b"[DONE]" not in received
    await asyncio.to_thread(running.process.wait, GRACE_S + 5)
    assert not running.engine.running


@pytest.mark.contract("Z-07")
async def test_a_large_upload_takes_little_memory(running: Running) -> None:
    """The kernel's high-water mark of the process; the sender is this one."""
    pid = running.process.pid
    headers = {
        "authorization": f"Bearer {running.key}",
        "content-type": f"multipart/form-data; boundary={BOUNDARY}",
    }

    def send(num_bytes: int) -> httpx.Response:
        url = f"{running.url}/v1/files"
        return httpx.post(url, content=form(num_bytes), headers=headers, timeout=120)

    assert (await asyncio.to_thread(send, 1_000_000)).status_code == 200
    reset_high_water_mark(pid)
    before_mib = memory_mib(pid, "VmRSS")
    reply = await asyncio.to_thread(send, UPLOAD_BYTES)
    assert reply.json()["bytes"] == UPLOAD_BYTES
    assert memory_mib(pid, "VmHWM") - before_mib < UPLOAD_MEMORY_MIB


async def test_new_requests_are_refused_while_a_stream_finishes(running: Running) -> None:
    body: dict[str, Any] = {
        "model": "m", "stream": True,
        "messages": [{"role": "user", "content": "fake:tokens=12 fake:token_ms=100"}],
    }  # fmt: skip
    headers = {"authorization": f"Bearer {running.key}"}
    async with (
        httpx.AsyncClient(headers=headers, base_url=running.url, timeout=10) as idle,
        httpx.AsyncClient(headers=headers, base_url=running.url, timeout=10) as http,
    ):
        assert (await idle.get("/v1/models")).status_code == 200  # its connection stays open
        async with http.stream("POST", "/v1/chat/completions", json=body) as reply:
            received = reply.aiter_bytes()
            whole = await anext(received)
            running.process.send_signal(signal.SIGTERM)
            await asyncio.sleep(0.2)
            for client in (idle, http):
                with pytest.raises(httpx.TransportError):
                    await client.get("/v1/models")
            assert running.process.returncode is None
            whole += b"".join([data async for data in received])
    assert whole.endswith(b"data: [DONE]\n\n")
    assert whole.count(b'"content":') >= 12
    assert await asyncio.to_thread(running.process.wait, GRACE_S + 3) == 0
