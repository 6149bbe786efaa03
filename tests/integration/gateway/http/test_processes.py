"""One gateway of two processes: counted together, restarted, drained and lost."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import orjson
import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from coserve.local.ports import free_port
from gateway.http.processes import share_of
from gateway.settings import GatewaySettings
from store.models import DEFAULT_PROJECT_ID
from store.repositories import key as keys
from store.repositories import project as projects
from store.session import Database
from tests.fakes.client import FakeEngine, FakeSettings
from tests.fakes.server import serving

ROOT = Path(__file__).parents[4]
LONG = "fake:tokens=2 fake:token_ms=600000"
SHORT = "fake:tokens=20 fake:token_ms=100"

pytestmark = pytest.mark.timeout(200)


@dataclass(frozen=True)
class Running:
    url: str
    headers: dict[str, str]
    process: asyncio.subprocess.Process
    log: Path

    @property
    def children(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children()

    def caller(self) -> httpx.AsyncClient:
        """Each of its requests has a connection of its own, so both processes get some."""
        limits = httpx.Limits(max_keepalive_connections=0)
        return httpx.AsyncClient(base_url=self.url, headers=self.headers, timeout=60, limits=limits)


@pytest.fixture
async def running(
    database: Database, database_url: str, broker_url: str, tmp_path: Path
) -> AsyncIterator[Running]:
    async with database.unit_of_work() as session:
        _, key = await keys.create(session, DEFAULT_PROJECT_ID, "test")
    port, log = free_port(), tmp_path / "log"
    async with serving(FakeEngine(FakeSettings(model="m", max_running=256))) as engine_url:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("COSERVE_")} | {
            "DATABASE_URL": database_url,
            "BROKER_URL": broker_url,
            "ENGINE_URLS": engine_url,
            "COSERVE_HOME": str(tmp_path),
            "COSERVE_PORT": str(port),
            "COSERVE_GATEWAY_PROCESSES": "2",
            "COSERVE_LOG_FORMAT": "json",
        }
        with log.open("wb") as out:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "gateway", cwd=ROOT, env=environment, stdout=out, stderr=out
            )
        headers = {"authorization": f"Bearer {key}"}
        gateway = Running(f"http://127.0.0.1:{port}", headers, process, log)
        try:
            await until_both_answer(gateway)
            yield gateway
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()


async def until_both_answer(gateway: Running) -> None:
    async with asyncio.timeout(90), gateway.caller() as http:
        while True:
            try:
                for _ in range(8):
                    await http.get("/readyz")
                if {"0", "1"} <= set(await by_process(http, "coserve_http_requests_total")):
                    return
            except httpx.TransportError:
                pass
            await asyncio.sleep(0.05)


async def by_process(http: httpx.AsyncClient, name: str) -> dict[str, float]:
    """A metric's sums, by process."""
    sums: dict[str, float] = {}
    for family in text_string_to_metric_families((await http.get("/metrics")).text):
        for sample in family.samples:
            if sample.name == name:
                process = sample.labels["process"]
                sums[process] = sums.get(process, 0) + sample.value
    return sums


def chat(prompt: str, *, stream: bool = False) -> dict[str, Any]:
    return {"model": "m", "stream": stream, "messages": [{"role": "user", "content": prompt}]}


async def stream(http: httpx.AsyncClient, begun: asyncio.Semaphore) -> bytes | None:
    """The whole of a stream; none if its connection broke."""
    received = b""
    try:
        async with http.stream("POST", "/v1/chat/completions", json=chat(SHORT, stream=True)) as to:
            assert to.status_code == 200
            begun.release()
            async for data in to.aiter_bytes():
                received += data
    except httpx.TransportError:
        return None
    return received


def is_whole(answer: bytes | None) -> bool:
    return answer is not None and answer.endswith(b"data: [DONE]\n\n")


@pytest.mark.thorough
async def test_two_processes_are_one_gateway(
    running: Running, database: Database, subtests: pytest.Subtests
) -> None:
    """One after the other, since two interpreters' starts take longer than all of it."""
    with subtests.test("a project has its limit once"):
        await a_project_has_its_limit_once(running, database)
    with subtests.test("a killed process takes its own streams along and comes back"):
        await a_killed_process_comes_back(running)
    with subtests.test("both serve, and are measured together"):
        answered = await both_serve(running)
        with subtests.test("a stop lets streams of both end"):
            await a_stop_lets_streams_end(running)
        with subtests.test("each request is logged once"):
            lines = [orjson.loads(line) for line in running.log.read_bytes().splitlines()]
            logged = [line.get("request_id") for line in lines if line.get("path")]
            assert {logged.count(one) for one in answered} == {1}


async def both_serve(running: Running) -> list[str]:
    """The ids of the requests that were made."""
    async with running.caller() as http:
        before = await by_process(http, "coserve_http_requests_total")
        replies = [await http.post("/v1/chat/completions", json=chat("hi")) for _ in range(40)]
        assert {reply.status_code for reply in replies} == {200}
        after = await by_process(http, "coserve_http_requests_total")
        grown = {process: after[process] - before[process] for process in after}
        assert min(grown.values()) > 0, grown
        assert sum(grown.values()) >= 40
        exposition = (await http.get("/metrics")).text
        heads = re.findall(r"^# TYPE (\S+)", exposition, re.MULTILINE)
        assert len(heads) == len(set(heads)), "a family stands in one place"
        assert 'coserve_engine_up{engine="' in exposition
    return [reply.headers["x-request-id"] for reply in replies]


async def a_project_has_its_limit_once(running: Running, database: Database) -> None:
    async with database.unit_of_work() as session:
        project = await projects.create(session, "small", limits={"concurrent_requests": 1})
        _, key = await keys.create(session, project.id, "small")
    path, headers = "/v1/chat/completions", {"authorization": f"Bearer {key}"}
    async with running.caller() as http:
        http.headers.update(headers)
        async with http.stream("POST", path, json=chat(LONG, stream=True)) as reply:
            assert reply.status_code == 200
            others = [await http.post(path, json=chat("hi")) for _ in range(16)]
            assert {other.status_code for other in others} == {429}
            asked = await by_process(http, "coserve_http_requests_total")
            assert min(asked.values()) > 0
        async with asyncio.timeout(30):
            while (await http.post(path, json=chat("hi"))).status_code != 200:
                await asyncio.sleep(0.02)  # until its process has seen the caller go


async def a_stop_lets_streams_end(running: Running) -> None:
    begun = asyncio.Semaphore(0)
    async with running.caller() as http, asyncio.TaskGroup() as group:
        streams = [group.create_task(stream(http, begun)) for _ in range(16)]
        for _ in streams:
            await begun.acquire()
        running.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(60):
            assert await running.process.wait() == 0
        assert all([is_whole(await one) for one in streams])
        with pytest.raises(httpx.ConnectError):
            await http.get("/readyz")


async def a_killed_process_comes_back(running: Running) -> None:
    begun = asyncio.Semaphore(0)
    async with running.caller() as http, asyncio.TaskGroup() as group:
        streams = [group.create_task(stream(http, begun)) for _ in range(32)]
        for _ in streams:
            await begun.acquire()
        killed = running.children[0]
        killed.kill()
        answers = [await one for one in streams]
        assert any(is_whole(one) for one in answers), "the other process' streams go on"
        assert None in answers, "no end that looks right"
        assert all(one is None or is_whole(one) for one in answers)
        again = [await stream(http, begun) for _ in range(8)]
        assert all(map(is_whole, again)), "who asks again is served, or waits for the new process"
        await until_both_answer(running)
        assert killed.pid not in {child.pid for child in running.children}


@pytest.mark.thorough
async def test_a_process_that_hangs_is_replaced_and_all_end_with_their_parent(
    running: Running,
) -> None:
    begun = asyncio.Semaphore(0)
    hung, other = running.children
    async with running.caller() as http, asyncio.TaskGroup() as group:
        streams = [group.create_task(stream(http, begun)) for _ in range(32)]
        for _ in streams:
            await begun.acquire()
        hung.suspend()
        answers = [await one for one in streams]
        assert any(is_whole(one) for one in answers), "the other process' streams go on"
        assert None in answers, "a stream of the one that hangs breaks, it does not wait for ever"
        again = [await stream(http, begun) for _ in range(8)]
        assert all(map(is_whole, again))
    await until_both_answer(running)
    assert other.pid in {child.pid for child in running.children}
    assert hung.pid not in {child.pid for child in running.children}
    assert "of the gateway hangs" in running.log.read_text()

    children = running.children
    assert len(children) == 2
    running.process.kill()
    _, alive = await asyncio.to_thread(psutil.wait_procs, children, timeout=30)
    assert not alive


def test_what_a_gateway_may_have_is_shared() -> None:
    whole = GatewaySettings(gateway_processes=3, max_connections=100, max_in_flight=1)
    part = share_of(whole)
    assert (part.max_connections, part.max_in_flight) == (34, 1)
    assert part.body_memory_bytes >= part.body_limit_bytes
    assert part.port == whole.port
