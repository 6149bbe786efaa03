"""Servers that never come to the end of an answer, each in another way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

_CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"

ENDLESS = {
    "heads before it": (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 1000),
    "long heads before it": (b"", b"HTTP/1.1 103 Hints\r\nx: " + b"y" * 4000 + b"\r\n\r\n"),
    "a head": (b"HTTP/1.1 200 OK\r\n", b"x: " + b"y" * 1000 + b"\r\n"),
    "a field of its head": (b"HTTP/1.1 200 OK\r\nx: ", b"y" * 4096),
    "a chunk's extension": (_CHUNKED + b"1;", b"x" * 4096),
    "extensions": (_CHUNKED, b"1;" + b"x" * 1000 + b"\r\ny\r\n"),
    "trailers": (_CHUNKED + b"1\r\ny\r\n0\r\n", b"x: " + b"y" * 1000 + b"\r\n"),
    "a body in chunks": (_CHUNKED, b"10000\r\n" + b"x" * 65536 + b"\r\n"),
    "a body without a length": (b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 65536),
    "a long body": (b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n", b"x" * 65536),
}
"""What begins an answer, and what follows for ever."""


@dataclass
class EndlessServer:
    """What was said of each answer.

    Attributes:
        url: Where it is.
        num_sent: Bytes so far, of all answers together.
        over: A client has hung up.
    """

    url: str = ""
    num_sent: int = 0
    over: asyncio.Event = field(default_factory=asyncio.Event)


@asynccontextmanager
async def endless(begin: bytes, piece: bytes) -> AsyncIterator[EndlessServer]:
    """A server each of whose answers begins so and never ends."""
    told = EndlessServer()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(begin)
            while True:
                writer.write(piece)
                told.num_sent += len(piece)
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            told.over.set()
        finally:
            writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    told.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield told
    finally:
        server.close()
