"""The least that a relay in Python can be: llhttp on both sides, bytes in, bytes out.

`python -m bench.gateway_compare.lean_relay UPSTREAM` prints `listening on PORT`. It has neither a
framework nor a client library, does nothing with what passes and knows whole answers alone: a task,
two parsers and two system calls each way. What a gateway costs beyond it is what the gateway does.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any, Final

import httptools
import uvloop

from engine_adapter.client.connections import Connections

_HEAD: Final = "HTTP/1.1 {} OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n"


class LeanRelay(asyncio.Protocol):
    """One connection of a caller; one request at a time."""

    def __init__(self, engine: Connections) -> None:
        self._engine = engine
        self._parser = httptools.HttpRequestParser(self)
        self._transport: Any = None
        self._path = ""
        self._body: list[bytes] = []
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        """Called by the parser."""
        self._path, self._body = url.decode(), []

    def on_body(self, piece: bytes) -> None:
        """Called by the parser."""
        self._body.append(piece)

    def on_message_complete(self) -> None:
        """Called by the parser: the request is whole."""
        self._task = asyncio.ensure_future(self._relay(self._path, b"".join(self._body)))

    async def _relay(self, path: str, body: bytes) -> None:
        connection = await self._engine.send(path, body)
        status, answer = await connection.answer
        self._engine.release(connection)
        self._transport.write(_HEAD.format(status, len(answer)).encode() + answer)


async def serve(upstream: str) -> None:
    engine = Connections(upstream)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: LeanRelay(engine), "127.0.0.1", 0)
    print("listening on", server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(sys.argv[1]))
