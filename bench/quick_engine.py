"""A fake engine that costs a tenth of what its callers cost: for benchmarks of those.

    python -m bench.quick_engine --latency-ms 20

It knows which requests it has and drops aborted ones, and gives everybody the same answer of 32
tokens. Prints `listening on PORT` when it serves. For everything else there is
`tests.fakes.server`.
"""

from __future__ import annotations

import argparse
import asyncio
from typing import Any, Final

import httptools
import orjson
import uvloop

from engine_adapter.client.base import CHAT_PATH
from tests.fakes.engine import FakeEngine, FakeSettings, usage_block, whole_answer

NUM_TOKENS: Final = 32
_HEAD: Final = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"


def _whole(body: bytes) -> bytes:
    return _HEAD % len(body) + body


class _Connection(asyncio.Protocol):
    """One connection; one request at a time."""

    def __init__(self, engine: FakeEngine, answer: bytes) -> None:
        self._engine = engine
        self._answer = answer
        self._parser = httptools.HttpRequestParser(self)
        self._path = ""
        self._body: list[bytes] = []
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: Any) -> None:
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
        body = orjson.loads(b"".join(self._body)) if self._body else {}
        if self._path == CHAT_PATH:
            self._begin(str(body.get("rid", "")))
            return
        if self._path == "/abort_request":
            self._engine.abort(body.get("rid") or "")
        told = {
            "/server_info": self._engine.server_info,
            "/v1/models": self._engine.models,
            "/model_info": self._engine.model_info,
        }.get(self._path, dict)
        self._write(_whole(orjson.dumps(told())))

    def _begin(self, rid: str) -> None:
        self._engine.running[rid] = aborted = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.call_later(self._engine.settings.latency_s, self._end, rid, aborted)

    def _end(self, rid: str, aborted: asyncio.Event) -> None:
        self._engine.running.pop(rid, None)
        if aborted.is_set() and self._transport is not None:
            self._transport.abort()
        else:
            self._write(self._answer)

    def _write(self, answer: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(answer)


async def _serve(settings: FakeSettings, port: int) -> None:
    engine = FakeEngine(settings)
    body = {"rid": "", "model": settings.model}
    text = " ".join(str(number) for number in range(NUM_TOKENS))
    answer = whole_answer(CHAT_PATH, body, text, "stop", usage_block(400, NUM_TOKENS))
    whole = _whole(orjson.dumps(answer))
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Connection(engine, whole), "127.0.0.1", port)
    print("listening on", server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def main() -> None:
    """Serve until ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--latency-ms", type=float, default=20.0)
    parser.add_argument("--max-running", type=int, default=1024)
    options = parser.parse_args()
    settings = FakeSettings(latency_s=options.latency_ms / 1000, max_running=options.max_running)
    uvloop.run(_serve(settings, options.port))


if __name__ == "__main__":
    main()
