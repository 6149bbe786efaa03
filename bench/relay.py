"""The gateway between a caller and a fake engine, on the path every request takes.

Real keys in a real Postgres, bodies checked, ids, finish reasons and usage rewritten. Two figures
have targets: what the gateway adds to the p50 of a whole answer, and its CPU per streamed chunk
when the engine writes as fast as it can. A third has none: the CPU per chunk when tokens come at a
pace on many streams, so that nearly every chunk is a wake-up, a read and a write of its own. CPU
is the kernel's count for the gateway's process, user and system; direct and relayed calls
alternate, so both see the same host.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import aiohttp

from bench.report import report
from bench.servers import postgres_url
from bench.upload import cpu_s, make_key, wait_ready

ROOT = Path(__file__).parents[1]
NUM_WARM = 200
NUM_CALLS = 2_000
UNPACED_TOKENS = 50_000
NUM_PACED_STREAMS = 64
PACED_TOKENS = 200
PACED_TOKEN_MS = 20
TARGETS = {
    "added_p50_ms": (2.0, False),
    "cpu_us_per_chunk_unpaced": (15.0, False),
}


def body(order: str, *, stream: bool = False) -> dict[str, Any]:
    return {
        "model": "fake-model",
        "messages": [
            {"role": "system", "content": "You are a helpful assistant."},
            {"role": "user", "content": f"Tell me about the sea. {order}"},
        ],
        "temperature": 0.7,
        "max_tokens": 64_000,
        "stream": stream,
    }


async def timed_ms(client: aiohttp.ClientSession, url: str) -> float:
    started = time.perf_counter()
    async with client.post(f"{url}/v1/chat/completions", json=body("fake:tokens=32")) as reply:
        assert reply.status == 200
        await reply.read()
    return (time.perf_counter() - started) * 1000


async def measure_whole(client: aiohttp.ClientSession, urls: tuple[str, str], pid: int) -> Any:
    """p50 and p99 of both ways, the gateway's CPU per request."""
    direct_ms: list[float] = []
    relayed_ms: list[float] = []
    before_s = 0.0
    for i in range(NUM_WARM + NUM_CALLS):
        if i == NUM_WARM:
            direct_ms.clear()
            relayed_ms.clear()
            before_s = cpu_s(pid)
        direct_ms.append(await timed_ms(client, urls[0]))
        relayed_ms.append(await timed_ms(client, urls[1]))
    direct, relayed = (statistics.quantiles(ms, n=100) for ms in (direct_ms, relayed_ms))
    return {
        "num_calls": NUM_CALLS,
        "direct_p50_ms": round(direct[49], 3),
        "relayed_p50_ms": round(relayed[49], 3),
        "added_p50_ms": round(relayed[49] - direct[49], 3),
        "added_p99_ms": round(relayed[98] - direct[98], 3),
        "cpu_us_per_request": round((cpu_s(pid) - before_s) / NUM_CALLS * 1e6, 1),
    }


async def stream(client: aiohttp.ClientSession, url: str, order: str) -> int:
    """Read one stream; the number of its chunks."""
    num_chunks = 0
    async with client.post(f"{url}/v1/chat/completions", json=body(order, stream=True)) as reply:
        assert reply.status == 200
        async for data in reply.content.iter_any():
            num_chunks += data.count(b"data: {")
    return num_chunks


async def measure_streams(client: aiohttp.ClientSession, url: str, pid: int) -> dict[str, Any]:
    """CPU per chunk, unpaced and paced."""
    await stream(client, url, "fake:tokens=2000")
    before_s = cpu_s(pid)
    num_unpaced = await stream(client, url, f"fake:tokens={UNPACED_TOKENS}")
    unpaced_s = cpu_s(pid) - before_s
    assert num_unpaced >= UNPACED_TOKENS
    paced = f"fake:tokens={PACED_TOKENS} fake:token_ms={PACED_TOKEN_MS}"
    before_s = cpu_s(pid)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(stream(client, url, paced)) for _ in range(NUM_PACED_STREAMS)]
    paced_s = cpu_s(pid) - before_s
    num_paced = sum(task.result() for task in tasks)
    assert num_paced >= NUM_PACED_STREAMS * PACED_TOKENS
    return {
        "num_chunks_unpaced": num_unpaced,
        "cpu_us_per_chunk_unpaced": round(unpaced_s / num_unpaced * 1e6, 2),
        "num_chunks_paced": num_paced,
        "cpu_us_per_chunk_paced": round(paced_s / num_paced * 1e6, 2),
    }


async def measure(urls: tuple[str, str], pid: int, key: str) -> dict[str, Any]:
    headers = {"authorization": f"Bearer {key}"}
    async with aiohttp.ClientSession(headers=headers, read_bufsize=1 << 20) as client:
        return {
            **await measure_whole(client, urls, pid),
            **await measure_streams(client, urls[1], pid),
        }


def wait_served(url: str, key: str) -> None:
    """Until the gateway has met its engine."""
    import httpx

    for _ in range(100):
        listed = httpx.get(f"{url}/v1/models", headers={"authorization": f"Bearer {key}"}).json()
        if listed.get("data"):
            return
        time.sleep(0.1)
    raise RuntimeError("the gateway does not see the engine")


def main() -> int:
    """Start Postgres, the fake engine and the gateway; measure; report."""
    folder = Path(tempfile.mkdtemp(prefix="csb-"))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    fake = subprocess.Popen(
        [sys.executable, "-m", "engine_adapter.client.fake_server", "--context-tokens", "65536"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert fake.stdout is not None
    try:
        engine_url = f"http://127.0.0.1:{fake.stdout.readline().split()[-1]}"
        with postgres_url(folder) as database_url:
            key = asyncio.run(make_key(database_url))
            env = {name: value for name, value in os.environ.items() if "COSERVE" not in name}
            env |= {
                "DATABASE_URL": database_url,
                "BROKER_URL": "redis://127.0.0.1:1/0",
                "ENGINE_URLS": engine_url,
                "COSERVE_HOME": str(folder),
                "COSERVE_PORT": str(port),
            }
            with (folder / "gateway.log").open("wb") as log:
                gateway = subprocess.Popen(
                    [sys.executable, "-m", "gateway"], cwd=ROOT, env=env, stdout=log, stderr=log
                )
            url = f"http://127.0.0.1:{port}"
            try:
                wait_ready(gateway, url)
                wait_served(url, key)
                measured = asyncio.run(measure((engine_url, url), gateway.pid, key))
            finally:
                gateway.terminate()
                gateway.wait(30)
    finally:
        fake.terminate()
        fake.wait(10)
        shutil.rmtree(folder, ignore_errors=True)
    return 0 if report("relay", measured, TARGETS) else 1


if __name__ == "__main__":
    sys.exit(main())
