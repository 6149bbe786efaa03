"""Two gateways behind a load balancer: restarted in turn they lose nothing; one may be killed."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from coserve.local.ports import free_port
from store.models import DEFAULT_PROJECT_ID
from store.repositories import key as keys
from store.session import Database
from tests.fakes.client import FakeEngine, FakeSettings
from tests.fakes.server import serving
from tests.fixtures.forked import ForkedProcess

NUM_STREAMS, NUM_UPLOADS = 50, 5
TOKENS, TOKEN_MS = 40, 100
POLL_INTERVAL_S = 0.1
"""How often the load balancer asks; the gateways' delay is several times that."""


@dataclass
class Balancer:
    """Sends requests to gateways that are ready, in turn, as a proxy before them does."""

    urls: tuple[str, ...]
    ready: list[str] = field(default_factory=list)
    num_sent: int = 0

    def next(self) -> str:
        self.num_sent += 1
        return self.ready[self.num_sent % len(self.ready)]

    async def look(self) -> None:
        async with httpx.AsyncClient(timeout=2) as http:
            while True:
                found = [url for url in self.urls if await _is_ready(http, url)]
                self.ready = found
                await asyncio.sleep(POLL_INTERVAL_S)

    async def until_ready(self, number: int) -> None:
        async with asyncio.timeout(60):
            while len(self.ready) != number:
                await asyncio.sleep(0.02)


async def _is_ready(http: httpx.AsyncClient, url: str) -> bool:
    try:
        return (await http.get(f"{url}/readyz")).status_code == 200
    except httpx.TransportError:
        return False


class Fleet:
    """Gateway processes, by their address."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._environment = environment
        self.processes: dict[str, ForkedProcess] = {}

    def start(self, url: str) -> None:
        self.processes[url] = ForkedProcess(
            (sys.executable, "-m", "gateway"),
            env=self._environment | {"COSERVE_PORT": url.rpartition(":")[2]},
            log=Path(self._environment["COSERVE_HOME"]) / "gateways.log",
        )

    async def restart(self, url: str) -> None:
        """As an orchestrator does: told to stop, waited for, started anew."""
        process = self.processes[url]
        process.terminate()
        assert await asyncio.to_thread(process.wait, 60) == 0
        self.start(url)

    async def stop(self) -> None:
        for process in self.processes.values():
            process.kill()
            await asyncio.to_thread(process.wait)


def environment(database_url: str, broker_url: str, engine_url: str, home: Path) -> dict[str, str]:
    plain = {k: v for k, v in os.environ.items() if not k.startswith("COSERVE_")}
    return plain | {
        "DATABASE_URL": database_url,
        "BROKER_URL": broker_url,
        "ENGINE_URLS": engine_url,
        "COSERVE_HOME": str(home),
        "COSERVE_SHUTDOWN_DELAY_S": str(10 * POLL_INTERVAL_S),
        "COSERVE_LOG_LEVEL": "warning",
    }


@asynccontextmanager
async def fleet(environment: dict[str, str], urls: tuple[str, ...]) -> AsyncIterator[Fleet]:
    started = Fleet(environment)
    try:
        for url in urls:
            started.start(url)
        yield started
    finally:
        await started.stop()


@pytest.fixture
async def key(database: Database) -> str:
    async with database.unit_of_work() as session:
        return (await keys.create(session, DEFAULT_PROJECT_ID, "test"))[1]


@pytest.mark.thorough
@pytest.mark.timeout(200)
async def test_a_rolling_restart_loses_no_stream_and_no_upload(
    database_url: str, broker_url: str, tmp_path: Path, key: str
) -> None:
    urls = tuple(f"http://127.0.0.1:{free_port()}" for _ in range(2))
    balancer = Balancer(urls)
    headers = {"authorization": f"Bearer {key}"}
    async with (
        serving(FakeEngine(FakeSettings(model="m", max_running=256))) as engine_url,
        fleet(
            environment(database_url, broker_url, engine_url, tmp_path),
            urls,
        ) as gateways,
        httpx.AsyncClient(
            headers=headers, timeout=60, limits=httpx.Limits(max_connections=None)
        ) as http,
        asyncio.TaskGroup() as group,
    ):
        looking = group.create_task(balancer.look())
        await balancer.until_ready(2)
        over = asyncio.Event()
        others = group.create_task(_ask_meanwhile(http, balancer, over))
        for url in urls:
            begun = asyncio.Semaphore(0)
            streams = [
                group.create_task(_stream(http, balancer.next(), begun)) for _ in range(NUM_STREAMS)
            ]
            uploads = [
                group.create_task(_upload(http, balancer.next(), begun)) for _ in range(NUM_UPLOADS)
            ]
            for _ in range(NUM_STREAMS + NUM_UPLOADS):
                await begun.acquire()
            await gateways.restart(url)
            answers = [await one for one in streams]
            assert all(answer.endswith(b"data: [DONE]\n\n") for answer in answers)
            assert {answer.count(b'"content":" ') for answer in answers} == {TOKENS - 1}
            assert [await one for one in uploads] == [200] * NUM_UPLOADS
            await balancer.until_ready(2)
        over.set()
        assert await others > 0
        looking.cancel()


@pytest.mark.thorough
@pytest.mark.timeout(200)
async def test_a_killed_gateway_takes_its_own_streams_along_and_no_others(
    database_url: str, broker_url: str, tmp_path: Path, key: str
) -> None:
    urls = tuple(f"http://127.0.0.1:{free_port()}" for _ in range(2))
    balancer, engine = Balancer(urls), FakeEngine(FakeSettings(model="m", max_running=256))
    headers = {"authorization": f"Bearer {key}"}
    async with (
        serving(engine) as engine_url,
        fleet(environment(database_url, broker_url, engine_url, tmp_path), urls) as gateways,
        httpx.AsyncClient(
            headers=headers, timeout=60, limits=httpx.Limits(max_connections=None)
        ) as http,
        asyncio.TaskGroup() as group,
    ):
        looking = group.create_task(balancer.look())
        await balancer.until_ready(2)
        begun = asyncio.Semaphore(0)
        streams = {
            url: [
                group.create_task(_stream_or_error(http, url, begun))
                for _ in range(NUM_STREAMS // 2)
            ]
            for url in urls
        }
        for _ in range(NUM_STREAMS):
            await begun.acquire()
        gateways.processes[urls[0]].kill()
        lost = [await one for one in streams[urls[0]]]
        assert all(isinstance(one, httpx.TransportError) for one in lost), "no end that looks right"
        await balancer.until_ready(1)
        retried = [group.create_task(_stream_or_error(http, balancer.next(), begun)) for _ in lost]
        untouched = [await one for one in streams[urls[1]]]
        for answer in [*untouched, *[await one for one in retried]]:
            assert isinstance(answer, bytes)
            assert answer.endswith(b"data: [DONE]\n\n")
            assert answer.count(b'"content":" ') == TOKENS - 1
        looking.cancel()


async def _stream_or_error(
    http: httpx.AsyncClient, url: str, begun: asyncio.Semaphore
) -> bytes | httpx.TransportError:
    try:
        return await _stream(http, url, begun)
    except httpx.TransportError as error:
        return error


async def _stream(http: httpx.AsyncClient, url: str, begun: asyncio.Semaphore) -> bytes:
    prompt = f"fake:tokens={TOKENS} fake:token_ms={TOKEN_MS}"
    body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": prompt}]}
    received = b""
    async with http.stream("POST", f"{url}/v1/chat/completions", json=body) as reply:
        assert reply.status_code == 200
        begun.release()
        async for data in reply.aiter_bytes():
            received += data
    return received


async def _upload(http: httpx.AsyncClient, url: str, begun: asyncio.Semaphore) -> int:
    """As long as the streams."""

    async def form() -> AsyncIterator[bytes]:
        head = b'--x\r\ncontent-disposition: form-data; name="purpose"\r\n\r\nuser_data\r\n'
        yield head + b'--x\r\ncontent-disposition: form-data; name="file"; filename="f"\r\n\r\n'
        for number in range(TOKENS):
            yield b"x" * 4096
            if number == 1:
                begun.release()
            await asyncio.sleep(TOKEN_MS / 1000)
        yield b"\r\n--x--\r\n"

    reply = await http.post(
        f"{url}/v1/files",
        content=form(),
        headers={"content-type": "multipart/form-data; boundary=x"},
    )
    return reply.status_code


async def _ask_meanwhile(http: httpx.AsyncClient, balancer: Balancer, over: asyncio.Event) -> int:
    """Short requests all the time; how many. None may fail."""
    number = 0
    while not over.is_set():
        reply = await http.get(f"{balancer.next()}/v1/models")
        assert reply.status_code == 200
        number += 1
        await asyncio.sleep(0.02)
    return number
