"""An engine's address that leads to something else: it is not used, and the reason is kept."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from api.errors import EngineUnavailable
from engine_adapter.client.http import HttpEngineClient
from engine_adapter.client.pool import EnginePool

ANSWERS = {
    "a list": b"[]",
    "null": b"null",
    "a number": b"3",
    "other things inside": b'{"internal_states": 3}',
    "a page": b"<html><body>Welcome</body></html>",
    "10 MB": b"[" + b"0," * (5 << 20) + b"0]",
    "no text": b"\xff\xfe",
}


@asynccontextmanager
async def answering(head: str, body: bytes) -> AsyncIterator[str]:
    """A server that says the same to every request; without a head it says nothing."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            if head:
                length = f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
                writer.write(head.encode() + length.encode() + body)
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def why_not(url: str) -> str:
    client = HttpEngineClient(url)
    pool = EnginePool([client])
    try:
        await pool.probe()
        with pytest.raises(EngineUnavailable):
            await client.live_rids()
        member = pool.members[0]
        assert member.asked
        assert not member.up
        return member.why
    finally:
        await pool.close()


@pytest.mark.parametrize("kind", ANSWERS)
async def test_what_is_no_engine_is_not_used(kind: str) -> None:
    async with answering("HTTP/1.1 200 OK\r\n", ANSWERS[kind]) as url:
        assert "no engine" in await why_not(url)


async def test_what_says_nothing_is_not_used() -> None:
    async with answering("", b"") as url:
        assert await why_not(url)


async def test_a_redirect_is_not_followed() -> None:
    async with answering("HTTP/1.1 200 OK\r\n", b"[]") as other:
        head = f"HTTP/1.1 302 Found\r\nlocation: {other}/server_info\r\n"
        async with answering(head, b"") as url:
            assert "no engine" not in await why_not(url)
