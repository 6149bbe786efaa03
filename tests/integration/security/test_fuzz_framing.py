"""Broken HTTP on real sockets: every answer is one envelope or none, and the server goes on."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import orjson
import pytest

from tests.integration.security.conftest import Outside, chat, check_error
from tests.integration.security.mutations import broken_bytes

NUM_REQUESTS, WIDTH = 1_500, 100
SOUND_EVERY = 50
"""Sound requests among the broken ones, which must be answered all the same."""

ANSWER_S = 60.0
QUIET_S = 3.0
"""Longer than the server's limits and its look at them: after an answer, nothing more will come."""


@pytest.fixture
def outside_settings() -> dict[str, str]:
    return {"COSERVE_HEAD_TIMEOUT_S": "0.5", "COSERVE_BODY_TIMEOUT_S": "0.5"}


def request(key: str, body: bytes, *headers: str, method: str = "POST") -> bytes:
    lines = (
        f"{method} /v1/chat/completions HTTP/1.1", "host: gateway", f"authorization: Bearer {key}",
        "content-type: application/json", *headers,
    )  # fmt: skip
    return "\r\n".join((*lines, "", "")).encode() + body


async def say(outside: Outside, data: bytes) -> bytes:
    """Send and read until the server closes; a connection it keeps is quiet after an answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", outside.port)
    received = b""
    try:
        writer.write(data)
        while True:
            async with asyncio.timeout(QUIET_S if statuses(received) else ANSWER_S):
                piece = await reader.read(65536)
            if not piece:
                return received
            received += piece
    except ConnectionError:
        return received
    except TimeoutError:
        assert statuses(received), (data, "neither answered nor closed")
        return received
    finally:
        writer.close()


def statuses(reply: bytes) -> list[int]:
    return [int(part[:3]) for part in reply.split(b"HTTP/1.1 ")[1:] if part[:3] != b"100"]


@pytest.mark.timeout(200)
async def test_broken_requests(outside: Outside) -> None:
    body = orjson.dumps(chat("hi", max_tokens=1))
    whole = request(outside.key, body, f"content-length: {len(body)}", "connection: close")
    chunked = request(
        outside.key,
        b"5\r\n" + body[:5] + b"\r\n%x\r\n" % len(body[5:]) + body[5:] + b"\r\n0\r\n\r\n",
        "transfer-encoding: chunked",
        "connection: close",
    )
    source, seen, room = random.Random(9112), Counter[int](), asyncio.Semaphore(WIDTH)

    async def one(data: bytes) -> None:
        async with room:
            reply = await say(outside, data)
        for status in statuses(reply):
            seen[status] += 1
            assert status < 500, (data, reply)
        last = reply.rpartition(b"\r\n\r\n")[2]
        if statuses(reply)[-1:] > [399] and last.startswith(b"{"):
            check_error(statuses(reply)[-1], last, outside.key)

    async with asyncio.TaskGroup() as group:
        for i in range(NUM_REQUESTS):
            sound = source.choice((whole, chunked))
            group.create_task(one(broken_bytes(source, sound) if i % SOUND_EVERY else sound))
    assert seen[200] >= NUM_REQUESTS // SOUND_EVERY
    assert seen[400] > 200
    assert statuses(await say(outside, whole)) == [200]
    assert statuses(await say(outside, chunked)) == [200]


AMBIGUOUS = (
    ("content-length: 4", "transfer-encoding: chunked"),
    ("transfer-encoding: chunked", "content-length: 4"),
    ("content-length: 4", "content-length: 40"),
    ("content-length: +4",),
    ("content-length: 4, 4",),
    ("content-length: -1",),
    ("transfer-encoding: xchunked",),
    ("transfer-encoding: chunked, identity",),
    ("transfer-encoding : chunked",),
    ("x: a\0b", "content-length: 4"),
    ("x: a\rcontent-length: 4",),
    ("x y: a", "content-length: 4"),
)


async def test_what_two_servers_could_read_differently_is_refused(outside: Outside) -> None:
    """A second request in the body of the first must never be served (request smuggling)."""
    smuggled = request(outside.key, b"", "content-length: 0", method="GET")
    for headers in AMBIGUOUS:
        reply = await say(outside, request(outside.key, b"0\r\n\r\n" + smuggled, *headers))
        assert statuses(reply) in ([400], [413]), (headers, reply)
