"""A whole response in one piece: the same on the wire as the server's two messages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest_asyncio
import uvicorn
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from gateway.http.connection import ConnectionLimits, guarded
from gateway.http.transport import answer_of
from tests.fixtures.listening import listening

REQUEST = "GET {} HTTP/1.1\r\nhost: t\r\n{}\r\n"


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """`/messages` answers by the server's messages, everything else in one piece."""
    path = scope["path"]
    response = Response(b"a body", headers={"x-own": path})
    answer = answer_of(scope)
    assert answer is not None
    headers = [*response.raw_headers]
    if path == "/messages":
        await response(scope, receive, send)
        assert not answer(200, headers, b"again")
        return
    if path == "/two-lines":
        headers.append((b"x-bad", b"one\r\nx-injected: two"))
    if path == "/last":
        headers.append((b"connection", b"close"))
    assert answer(200, headers, bytes(response.body))


@pytest_asyncio.fixture
async def port() -> AsyncIterator[int]:
    protocol = guarded(ConnectionLimits())
    config = uvicorn.Config(app, port=0, http=protocol, lifespan="off", log_config=None)
    async with listening(uvicorn.Server(config)) as url:
        yield int(url.rpartition(":")[2])


async def said(port: int, *requests: str) -> bytes:
    """Send requests at once, the last of which ends the connection, and read to its end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write("".join(requests).encode())
    async with asyncio.timeout(30):
        try:
            return await reader.read()
        finally:
            writer.close()


async def test_both_ways_are_the_same_on_the_wire(port: int) -> None:
    close = "connection: close\r\n"
    ways = [await said(port, REQUEST.format(path, close)) for path in ("/messages", "/whole")]
    assert ways[0].replace(b"/messages", b"/whole") == ways[1]
    assert ways[1].startswith(b"HTTP/1.1 200 OK\r\n")
    assert ways[1].endswith(b"connection: close\r\n\r\na body")


async def test_a_connection_serves_one_request_after_the_other(port: int) -> None:
    requests = [REQUEST.format(path, "") for path in ("/1", "/messages", "/2", "/last")]
    raw = await said(port, *requests)
    assert [part.split(b"\r\n")[0] for part in raw.split(b"x-own: ")[1:]] == [
        b"/1", b"/messages", b"/2", b"/last",
    ]  # fmt: skip
    assert raw.count(b"connection: close") == 1


async def test_a_header_has_one_line(port: int) -> None:
    raw = await said(port, REQUEST.format("/two-lines", "connection: close\r\n"))
    assert raw.startswith(b"HTTP/1.1 500")
    assert b"x-injected" not in raw
