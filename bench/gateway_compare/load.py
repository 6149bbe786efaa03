"""What is asked of every server, and what is measured of its process.

Servers take turns in short blocks whose order is drawn anew each round, so that all see the same
host. CPU is what the kernel counted for a server's threads, user and system, in nanoseconds.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import aiohttp

from bench.processes import cpu_ns
from bench.servers import Server

SEED = 20261121
NUM_WARM = 100
ROUNDS, CALLS_PER_BLOCK = 60, 20
WHOLE_TOKENS = 32
UNPACED_ROUNDS, UNPACED_TOKENS = 5, 4_000
PACED_ROUNDS, NUM_PACED_STREAMS, PACED_TOKENS, PACED_TOKEN_MS = 2, 64, 100, 20


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


async def whole(client: aiohttp.ClientSession, peer: Server) -> float:
    """Ask for one whole answer; how long it took, in ms."""
    ordered = body(f"fake:tokens={WHOLE_TOKENS}")
    started = time.perf_counter()
    async with client.post(f"{peer.url}/v1/chat/completions", json=ordered) as reply:
        assert reply.status == 200, await reply.text()
        raw = await reply.read()
    took_ms = (time.perf_counter() - started) * 1000
    assert b"31 32" in raw
    return took_ms


async def stream(client: aiohttp.ClientSession, peer: Server, order: str) -> int:
    """Read one stream; the number of its chunks."""
    num_chunks, last = 0, b""
    url = f"{peer.url}/v1/chat/completions"
    async with client.post(url, json=body(order, stream=True)) as reply:
        assert reply.status == 200, await reply.text()
        async for data in reply.content.iter_any():
            num_chunks += (last[-6:] + data).count(b"data: {")
            last = data
    assert last.rstrip().endswith(b"[DONE]")
    return num_chunks


async def measure(peers: Sequence[Server]) -> dict[str, Any]:
    """Figures by server."""
    figures: dict[str, dict[str, Any]] = {peer.name: {} for peer in peers}
    streaming = [peer for peer in peers if peer.name != "lean_relay"]
    for part in (whole_answers, unpaced_streams, paced_streams):
        asked = peers if part is whole_answers else streaming
        for name, measured in (await part(asked)).items():
            figures[name] |= measured
        print(f"  {part.__name__}: done", flush=True)
    return figures


async def whole_answers(peers: Sequence[Server]) -> dict[str, dict[str, float]]:
    """One call at a time: latency as a caller sees it, CPU per request."""
    took_ms: dict[str, list[float]] = defaultdict(list)
    spent_ns: dict[str, int] = defaultdict(int)
    order = random.Random(SEED)
    for peer in peers:
        async with _client(peer) as client:
            for _ in range(NUM_WARM):
                await whole(client, peer)
    clients = {peer.name: _client(peer) for peer in peers}
    for _ in range(ROUNDS):
        for peer in order.sample(peers, len(peers)):
            await whole(clients[peer.name], peer)  # connections idle out between the blocks
            before_ns = cpu_ns(peer.pid)
            for _ in range(CALLS_PER_BLOCK):
                took_ms[peer.name].append(await whole(clients[peer.name], peer))
            spent_ns[peer.name] += cpu_ns(peer.pid) - before_ns
    for client in clients.values():
        await client.close()
    direct_ms = statistics.median(took_ms["direct"])
    return {
        name: {
            "p50_ms": round(statistics.median(values), 3),
            "p99_ms": round(statistics.quantiles(values, n=100)[98], 3),
            "added_p50_ms": round(statistics.median(values) - direct_ms, 3),
            "cpu_us_per_request": round(spent_ns[name] / len(values) / 1000, 1),
        }
        for name, values in took_ms.items()
    }


async def unpaced_streams(peers: Sequence[Server]) -> dict[str, dict[str, float]]:
    """One stream at a time, as fast as the engine writes."""
    order = f"fake:tokens={UNPACED_TOKENS}"
    return await _streams(peers, UNPACED_ROUNDS, 1, order, UNPACED_TOKENS, "unpaced")


async def paced_streams(peers: Sequence[Server]) -> dict[str, dict[str, float]]:
    """Many streams at the pace of an engine: nearly every chunk is a wake-up of its own."""
    order = f"fake:tokens={PACED_TOKENS} fake:token_ms={PACED_TOKEN_MS}"
    return await _streams(peers, PACED_ROUNDS, NUM_PACED_STREAMS, order, PACED_TOKENS, "paced")


async def _streams(
    peers: Sequence[Server], rounds: int, width: int, order: str, num_tokens: int, name: str
) -> dict[str, dict[str, float]]:
    num_chunks: dict[str, int] = defaultdict(int)
    spent_ns: dict[str, int] = defaultdict(int)
    source = random.Random(SEED)
    for _ in range(rounds):
        for peer in source.sample(peers, len(peers)):
            async with _client(peer) as client:
                await stream(client, peer, "fake:tokens=10")
                before_ns = cpu_ns(peer.pid)
                async with asyncio.TaskGroup() as group:
                    tasks = [group.create_task(stream(client, peer, order)) for _ in range(width)]
                spent_ns[peer.name] += cpu_ns(peer.pid) - before_ns
            num_chunks[peer.name] += sum(task.result() for task in tasks)
    for peer in peers:
        # A server may put several tokens into one chunk; it is charged by the token all the same.
        assert num_chunks[peer.name] > 0
    total = rounds * width * num_tokens
    return {
        peer.name: {
            f"cpu_us_per_chunk_{name}": round(spent_ns[peer.name] / total / 1000, 2),
            f"num_chunks_{name}": num_chunks[peer.name],
        }
        for peer in peers
    }


def _client(peer: Server) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        headers={"authorization": f"Bearer {peer.key}"},
        read_bufsize=1 << 20,
        timeout=aiohttp.ClientTimeout(total=300),
        connector=aiohttp.TCPConnector(limit=0),
    )
