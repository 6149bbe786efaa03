"""The fake engine behind a real port: `python -m tests.fakes.server --port 0`.

Prints `listening on PORT` when it serves. Used by benchmarks and integration tests.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import orjson
from aiohttp import web

from engine_adapter.client.base import CHAT_PATH, COMPLETIONS_PATH, EMBEDDINGS_PATH
from engine_adapter.client.engine_facts import OURS
from tests.fakes.dialect import answer, events
from tests.fakes.engine import ConnectionBroken, FakeEngine, FakeSettings, Refused
from tests.fakes.foreign import foreign_app
from tests.fakes.journal import BEGUN, SERVED, Journal

_ENGINE = web.AppKey("engine", FakeEngine)
_JOURNAL = web.AppKey("journal", Journal)


def _json(body: Any, status: int = 200) -> web.Response:
    return web.Response(body=orjson.dumps(body), status=status, content_type="application/json")


def _break(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.abort()


async def _generate(request: web.Request) -> web.StreamResponse:
    engine, journal = request.app[_ENGINE], request.app[_JOURNAL]
    engine.traceparents.append(request.headers.get("traceparent"))
    body = orjson.loads(await request.read())
    try:
        script = engine.script(request.path, body)
        journal.note(BEGUN, request.path, body)
        if not body.get("stream"):
            whole = await answer(engine, request.path, body, script)
            journal.note(SERVED, request.path, body)
            return _json(whole)
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        async with aclosing(events(engine, request.path, body, script)) as stream:
            async for event in stream:
                if not response.prepared:
                    await response.prepare(request)
                await response.write(b"data: " + event + b"\n\n")
        await response.write(b"data: [DONE]\n\n")
        journal.note(SERVED, request.path, body)
    except Refused as refused:
        return _json(refused.body, refused.status)
    except ConnectionBroken:
        _break(request)
        return web.Response()
    return response


async def _abort(request: web.Request) -> web.Response:
    body = orjson.loads(await request.read())
    request.app[_ENGINE].abort(body.get("rid") or "")
    return web.Response()


async def _server_info(request: web.Request) -> web.Response:
    return _json(request.app[_ENGINE].server_info())


async def _models(request: web.Request) -> web.Response:
    return _json(request.app[_ENGINE].models())


async def _model_info(request: web.Request) -> web.Response:
    return _json(request.app[_ENGINE].model_info())


async def _set_internal_state(request: web.Request) -> web.Response:
    knobs = orjson.loads(await request.read())["server_args"]
    return _json(request.app[_ENGINE].set_internal_state(knobs))


async def _health(request: web.Request) -> web.Response:
    return web.Response(status=503 if request.app[_ENGINE].down else 200)


def make_app(engine: FakeEngine, journal: Journal | None = None) -> web.Application:
    """The routes the service uses of an engine."""
    app = web.Application(client_max_size=64 * 1024 * 1024)
    app[_ENGINE] = engine
    app[_JOURNAL] = journal or Journal()
    app.add_routes(
        [
            web.post(CHAT_PATH, _generate),
            web.post(COMPLETIONS_PATH, _generate),
            web.post(EMBEDDINGS_PATH, _generate),
            web.post("/abort_request", _abort),
            web.get("/server_info", _server_info),
            web.get("/v1/models", _models),
            web.get("/model_info", _model_info),
            web.post("/set_internal_state", _set_internal_state),
            web.get("/health", _health),
        ]
    )
    return app


@asynccontextmanager
async def serving(
    engine: FakeEngine,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    journal: Journal | None = None,
) -> AsyncIterator[str]:
    """Serve `engine` while the block runs; yields its URL."""
    # SGLang drops a request whose client is gone only seconds later: neither does the fake.
    is_foreign = engine.settings.server != OURS
    app = foreign_app(engine) if is_foreign else make_app(engine, journal)
    runner = web.AppRunner(
        app, handler_cancellation=is_foreign, access_log=None, shutdown_timeout=0.5
    )
    await runner.setup()
    site = web.TCPSite(runner, host, port)
    await site.start()
    try:
        yield f"http://{host}:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def _serve(settings: FakeSettings, port: int, journal: Journal) -> None:
    async with serving(FakeEngine(settings), port=port, journal=journal) as url:
        print("listening on", url.rsplit(":", 1)[1], flush=True)
        await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    defaults = FakeSettings()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--model", default=defaults.model)
    parser.add_argument("--latency-ms", type=float, default=0.0)
    parser.add_argument("--token-ms", type=float, default=0.0)
    parser.add_argument("--context-tokens", type=int, default=defaults.context_tokens)
    parser.add_argument("--max-running", type=int, default=defaults.max_running)
    parser.add_argument("--sampling-backend", default=defaults.sampling_backend)
    parser.add_argument("--server", default=OURS, help="coserve, vllm, sglang or openai")
    parser.add_argument("--journal", type=Path, help="append every call to this file")
    parser.add_argument("--embeds", action="store_true", help="make embeddings, and no text")
    options = parser.parse_args()
    settings = FakeSettings(
        model=options.model,
        context_tokens=options.context_tokens,
        latency_s=options.latency_ms / 1000,
        token_s=options.token_ms / 1000,
        max_running=options.max_running,
        embeds=options.embeds,
        sampling_backend=options.sampling_backend,
        server=options.server,
    )
    with suppress(KeyboardInterrupt):
        asyncio.run(_serve(settings, options.port, Journal(options.journal)))


if __name__ == "__main__":
    main()
