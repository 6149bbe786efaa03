"""Online requests beside 500 slow clients: what everybody else sees of them.

    python -m bench.slow_clients

One gateway process before a fake engine. For a while one caller after another asks for whole and
for streamed answers; then the same with 500 connections that send their heads and bodies a byte at
a time, or ask for 16 MB and do not read. Both halves alternate, so that they see the same host.

Quoted in docs/benchmark-gateway.md.
"""

from __future__ import annotations

import asyncio
import socket
import statistics
import sys
import time
from contextlib import ExitStack
from typing import Any

import aiohttp
import orjson

from bench.gateway_compare.load import body
from bench.processes import memory_mib
from bench.report import at_most, option_parser, report, scratch_folder
from bench.servers import Server, one_gateway

NUM_HEADS, NUM_BODIES, NUM_READERS = 220, 220, 60
ROUNDS, CALLS = 4, 250
TRICKLE_S = 0.5
FLOOD = "fake:tokens=4000 fake:width=4000"
TARGETS = {"p99_ratio": at_most(1.5), "num_unanswered": at_most(0.0)}


def head(gateway: Server, length: int) -> bytes:
    return (
        "POST /v1/chat/completions HTTP/1.1\r\nhost: gateway\r\ncontent-type: application/json\r\n"
        f"authorization: Bearer {gateway.key}\r\ncontent-length: {length}\r\n"
    ).encode()


class SlowClients:
    """Opens them, feeds those that send, and replaces those that the gateway has ended."""

    def __init__(self, gateway: Server, stack: ExitStack) -> None:
        self._gateway = gateway
        self._stack = stack
        flood = orjson.dumps(body(FLOOD, stream=True))
        self._begin = {
            "head": head(gateway, 9)[:40],
            "body": head(gateway, 100_000) + b"\r\n{",
            "reader": head(gateway, len(flood)) + b"\r\n" + flood,
        }
        kinds = ["head"] * NUM_HEADS + ["body"] * NUM_BODIES + ["reader"] * NUM_READERS
        self._clients = [(kind, self._connect(kind)) for kind in kinds]
        self.num_ended = 0

    def _connect(self, kind: str) -> socket.socket:
        made = self._stack.enter_context(socket.socket())
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        made.connect(("127.0.0.1", int(self._gateway.url.rpartition(":")[2])))
        made.setblocking(False)
        made.send(self._begin[kind])
        return made

    async def trickle(self) -> None:
        """One byte from each that sends, for ever."""
        while True:
            for i, (kind, client) in enumerate(self._clients):
                if kind == "reader":
                    continue
                try:
                    client.send(b"x" if kind == "head" else b" ")
                except OSError:
                    client.close()
                    self.num_ended += 1
                    self._clients[i] = (kind, self._connect(kind))
            await asyncio.sleep(TRICKLE_S)


async def calls(client: aiohttp.ClientSession, gateway: Server) -> tuple[list[float], int]:
    """Latencies in ms, and how many calls failed."""
    took_ms, num_failed = [], 0
    for i in range(CALLS):
        ordered = body("fake:tokens=32", stream=bool(i % 2))
        started = time.perf_counter()
        async with client.post(f"{gateway.url}/v1/chat/completions", json=ordered) as reply:
            raw = await reply.read()
            num_failed += reply.status != 200 or b"32" not in raw
        took_ms.append((time.perf_counter() - started) * 1000)
    return took_ms, num_failed


async def measure(gateway: Server) -> dict[str, Any]:
    headers = {"authorization": f"Bearer {gateway.key}"}
    alone_ms: list[float] = []
    beside_ms: list[float] = []
    num_failed = num_ended = 0
    peak_mib = 0.0
    async with aiohttp.ClientSession(headers=headers) as client:
        await calls(client, gateway)
        before_mib = memory_mib(gateway.pid, "VmRSS")
        for _ in range(ROUNDS):
            took_ms, failed = await calls(client, gateway)
            alone_ms += took_ms
            num_failed += failed
            with ExitStack() as stack:
                slow = SlowClients(gateway, stack)
                async with asyncio.TaskGroup() as group:
                    trickling = group.create_task(slow.trickle())
                    await asyncio.sleep(3)  # until the readers' buffers are full
                    took_ms, failed = await calls(client, gateway)
                    peak_mib = max(peak_mib, memory_mib(gateway.pid, "VmRSS"))
                    trickling.cancel()
                beside_ms += took_ms
                num_failed += failed
                num_ended += slow.num_ended
            await asyncio.sleep(1)
    alone, beside = (statistics.quantiles(ms, n=100) for ms in (alone_ms, beside_ms))
    return {
        "num_slow_clients": NUM_HEADS + NUM_BODIES + NUM_READERS,
        "num_calls_each": ROUNDS * CALLS,
        "num_unanswered": float(num_failed),
        "num_slow_clients_ended_meanwhile": num_ended,
        "alone_p50_ms": round(alone[49], 3),
        "beside_p50_ms": round(beside[49], 3),
        "alone_p99_ms": round(alone[98], 3),
        "beside_p99_ms": round(beside[98], 3),
        "p99_ratio": round(beside[98] / alone[98], 3),
        "rss_growth_mib": round(peak_mib - before_mib, 1),
    }


def main() -> int:
    option_parser(__doc__).parse_args()
    with scratch_folder() as folder, one_gateway(folder) as gateway:
        measured = asyncio.run(measure(gateway))
    return report("slow_clients", measured, TARGETS)


if __name__ == "__main__":
    sys.exit(main())
