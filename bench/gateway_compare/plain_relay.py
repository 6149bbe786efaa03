"""The least a relay can be: bytes in, bytes out, on the gateway's own loop and HTTP client.

`python -m bench.gateway_compare.plain_relay UPSTREAM` prints `listening on PORT`. No keys, no
checks, nothing rewritten or counted: what it costs is the price of a second hop in Python.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator

import aiohttp
import uvloop
from aiohttp import web

UPSTREAM = web.AppKey("upstream", str)
SESSION = web.AppKey("session", aiohttp.ClientSession)
READ_BYTES = 256 * 1024


async def relay(request: web.Request) -> web.StreamResponse:
    """One request to the engine and its answer back, as it comes."""
    body = await request.read()
    url = request.app[UPSTREAM] + request.path
    headers = {"content-type": "application/json"}
    async with request.app[SESSION].post(url, data=body, headers=headers) as answer:
        if answer.content_type != "text/event-stream":
            whole = await answer.read()
            return web.Response(body=whole, status=answer.status, content_type=answer.content_type)
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        async for data in answer.content.iter_any():
            await response.write(data)
    return response


async def session(app: web.Application) -> AsyncIterator[None]:
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=3),
        timeout=aiohttp.ClientTimeout(total=None),
        read_bufsize=READ_BYTES,
        auto_decompress=False,
    ) as made:
        app[SESSION] = made
        yield


async def serve(upstream: str) -> None:
    app = web.Application()
    app[UPSTREAM] = upstream
    app.cleanup_ctx.append(session)
    app.add_routes([web.post("/v1/chat/completions", relay)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print("listening on", runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(serve(sys.argv[1]))
