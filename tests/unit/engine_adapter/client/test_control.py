"""What answers at an engine's address may be anything: it costs the gateway's loop little."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from api.errors import EngineUnavailable
from api.json_shape import MAX_CONTAINERS
from engine_adapter.client.control import (
    CONTROL_TIMEOUT_S,
    MAX_CONTROL_BYTES,
    SMALL_BYTES,
    read,
)
from engine_adapter.client.http import HttpEngineClient
from tests.fakes.endless import ENDLESS, endless

CROWDED = b"[" + b"[]," * MAX_CONTAINERS + b"[]]"
"""Parsed, as many objects as that hold the loop for a second at the longest answer."""


@asynccontextmanager
async def answering(body: bytes) -> AsyncIterator[str]:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
                await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (CROWDED, "too complex"),
        (b"[" * 200 + b"]" * 200, "too complex"),
        (b"[]" + b" " * MAX_CONTROL_BYTES, "more than 4 MiB"),
        (b"[]" + b" " * SMALL_BYTES, "an object was expected"),
        (b"\xff" + b" " * SMALL_BYTES, "does not speak JSON"),
    ],
    ids=["many objects", "deep", "long", "a list", "no JSON"],
)
async def test_an_answer_that_is_no_engine_s_is_refused(body: bytes, said: str) -> None:
    async with answering(body) as url:
        client = HttpEngineClient(url)
        with pytest.raises(EngineUnavailable, match=said):
            await client.facts()
        await client.close()


async def test_a_long_answer_is_read_beside_the_loop() -> None:
    assert await read(SMALL_BYTES, threading.get_ident) == threading.get_ident()
    assert await read(SMALL_BYTES + 1, threading.get_ident) != threading.get_ident()


KERNEL_BYTES = 16 << 20
"""What sockets may hold beside what was read."""


@pytest.mark.parametrize("way", ENDLESS)
async def test_an_answer_without_end_is_given_up_before_its_time(way: str) -> None:
    async with endless(*ENDLESS[way]) as server, asyncio.timeout(CONTROL_TIMEOUT_S / 2):
        client = HttpEngineClient(server.url)
        with pytest.raises(EngineUnavailable):
            await client.facts()
        await server.over.wait()
        assert server.num_sent < MAX_CONTROL_BYTES + KERNEL_BYTES
        await client.close()
