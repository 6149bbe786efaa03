"""500 slow clients and everybody else: answered as before, and memory stays bounded."""

from __future__ import annotations

import asyncio
import socket
from contextlib import ExitStack

import orjson
import pytest

from tests.integration.security.conftest import Outside, chat

NUM_HEADS, NUM_BODIES, NUM_READERS = 220, 220, 60
STREAM = {"stream": True, "max_tokens": 8_000}
FLOOD = "fake:tokens=4000 fake:width=4000"
"""16 MB: no buffer on the way holds it."""


@pytest.fixture
def outside_settings() -> dict[str, str]:
    return {
        "COSERVE_HEAD_TIMEOUT_S": "4",
        "COSERVE_BODY_TIMEOUT_S": "4",
        "COSERVE_WRITE_TIMEOUT_S": "4",
        "COSERVE_LOG_LEVEL": "warning",
    }


def head(outside: Outside, length: int) -> bytes:
    return (
        "POST /v1/chat/completions HTTP/1.1\r\nhost: gateway\r\n"
        f"authorization: Bearer {outside.key}\r\ncontent-type: application/json\r\n"
        f"content-length: {length}\r\n"
    ).encode()


def connect(outside: Outside, stack: ExitStack) -> socket.socket:
    made = stack.enter_context(socket.socket())
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    made.connect(("127.0.0.1", outside.port))
    made.setblocking(False)
    return made


async def trickle(outside: Outside, clients: list[socket.socket], data: bytes) -> None:
    """One byte each, ten times a second, until the server has had enough."""
    for i in range(len(data)):
        for client in clients:
            try:
                client.send(data[i : i + 1])
            except OSError:
                continue
        await asyncio.sleep(0.1)


async def closed_by_server(client: socket.socket) -> bool:
    """Whether reading comes to an end."""
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(20):
            while await loop.sock_recv(client, 65536):
                pass
    except ConnectionError:
        pass
    except TimeoutError:
        return False
    return True


@pytest.mark.timeout(200)
async def test_others_are_answered_and_all_slow_ones_are_ended(outside: Outside) -> None:

    flood = orjson.dumps(chat(FLOOD, **STREAM))
    async with outside.http() as http:
        assert (await http.post("/v1/chat/completions", json=chat("hi"))).status_code == 200
        before_mib = outside.rss_mib()
        with ExitStack() as stack:
            heads = [connect(outside, stack) for _ in range(NUM_HEADS)]
            bodies = [connect(outside, stack) for _ in range(NUM_BODIES)]
            readers = [connect(outside, stack) for _ in range(NUM_READERS)]
            for client in bodies:
                client.send(head(outside, 10_000) + b"\r\n{")
            for client in readers:
                client.send(head(outside, len(flood)) + b"\r\n" + flood)
            peak_mib = 0.0
            async with asyncio.TaskGroup() as group:
                slow = [
                    group.create_task(trickle(outside, heads, head(outside, 9) * 2)),
                    group.create_task(trickle(outside, bodies, b" " * 200)),
                ]
                for i in range(200):
                    stream = bool(i % 2)
                    reply = await http.post("/v1/chat/completions", json=chat("hi", stream=stream))
                    assert reply.status_code == 200
                    peak_mib = max(peak_mib, outside.rss_mib())
                    await asyncio.sleep(0.01)
                ended = await asyncio.gather(
                    *(closed_by_server(client) for client in (*heads, *bodies))
                )
                assert all(ended)
                for task in slow:
                    task.cancel()
            async with asyncio.timeout(30):
                while outside.engine.running or outside.engine.waiting:
                    await asyncio.sleep(0.05)
            assert peak_mib - before_mib < 150
        metrics = (await http.get("/metrics")).text
    for why, num in (("head", NUM_HEADS), ("body", NUM_BODIES), ("reading", NUM_READERS)):
        assert f'coserve_connections_cut_total{{why="{why}"}} {num}.0' in metrics
