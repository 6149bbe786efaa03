"""A relay that gives the placeholders of the Python client's own tests something to stand for.

Those tests are written for a mock that answers anything: they ask for the file `file_id`, the batch
`batch_id`, the response `response_id` and OpenAI's models. The relay puts a real key, object or
model in the place of each placeholder and hands everything else through; replies are not touched.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import aiohttp
import orjson
from aiohttp import web

from tests.conformance.live_stack import Live

_SERVED_ENDPOINT: Final = "/v1/chat/completions"
_LIMITS: Final = {"max_tokens", "max_completion_tokens"}
_HOP: Final = {"host", "content-length", "transfer-encoding", "connection", "authorization"}


class _Arranger:
    def __init__(self, live: Live, session: aiohttp.ClientSession) -> None:
        self._live = live
        self._session = session
        self._headers = {"authorization": f"Bearer {live.key}"}

    async def relay(self, request: web.Request) -> web.StreamResponse:
        parts: list[str] = []
        for part in request.path.split("/"):
            parts.append(await self._segment(part, request.path, parts))
        body = await request.read()
        if request.content_type == "application/json" and body:
            body = orjson.dumps(await self._body(request.path, orjson.loads(body)))
        query = {
            name: await self._value("/".join(parts), name, value)
            for name, value in request.query.items()
        }
        headers = {k: v for k, v in request.headers.items() if k.lower() not in _HOP}
        async with self._session.request(
            request.method,
            f"{self._live.url}/v1{'/'.join(parts)}",
            params=query,
            data=body or None,
            headers={**headers, **self._headers},
        ) as answer:
            kept = {k: v for k, v in answer.headers.items() if k.lower() not in _HOP}
            response = web.StreamResponse(status=answer.status, headers=kept)
            await response.prepare(request)
            with suppress(aiohttp.ClientConnectionResetError):  # it has seen enough of a stream
                async for chunk in answer.content.iter_any():
                    await response.write(chunk)
            return response

    async def _segment(self, part: str, path: str, before: list[str]) -> str:
        if part == "file_id":
            return await self._new_file()
        if part == "batch_id":
            return await self._new_batch()
        if part == "conv_123":
            return await self._new_conversation()
        if part == "msg_abc":
            return await self._first_item("/".join(before))
        if part == "response_id" or part.startswith("resp_"):
            return await self._new_response(to_cancel=path.endswith("/cancel"))
        if part and path.removeprefix("/models/") == part:
            return self._live.model
        return part

    async def _value(self, path: str, name: str, value: str) -> str:
        """The tests page with values that the API's description itself forbids."""
        if name == "limit" and value == "0":
            return "1"
        if name == "after" and path.endswith("items"):
            return await self._first_item(path)
        if name == "after":
            return await (self._new_file() if path == "/files" else self._new_batch())
        return value

    async def _body(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        if "model" in body:
            embeds = path == "/embeddings"
            body["model"] = self._live.embedder if embeds else self._live.model
        if path == "/chat/completions" and not body.keys() & _LIMITS:
            body["max_tokens"] = 16  # a real engine would go on to the end of its context
        if path == "/responses":
            body = {"model": self._live.model, "input": "x", "max_output_tokens": 16, **body}
        if path == "/batches":
            body |= {"endpoint": _SERVED_ENDPOINT, "input_file_id": await self._new_file()}
        return body

    async def _new_file(self) -> str:
        line = {
            "custom_id": "a",
            "method": "POST",
            "url": _SERVED_ENDPOINT,
            "body": {
                "model": self._live.model,
                "messages": [{"role": "user", "content": "x"}],
                "max_tokens": 1,
            },
        }
        form = aiohttp.FormData({"purpose": "batch"})
        form.add_field("file", orjson.dumps(line), filename="in.jsonl")
        return await self._made("/files", data=form)

    async def _new_batch(self) -> str:
        # Paused, so that there is still something to cancel when the test comes to it.
        body = {
            "input_file_id": await self._new_file(),
            "endpoint": _SERVED_ENDPOINT,
            "completion_window": "24h",
            "coserve": {"paused": True},
        }
        return await self._made("/batches", json=body)

    async def _new_response(self, *, to_cancel: bool) -> str:
        body: dict[str, Any] = {"model": self._live.model, "input": "x", "max_output_tokens": 4}
        if to_cancel:  # long enough that there is still something to cancel
            body = {"model": self._live.model, "input": "fake:token_ms=100", "background": True}
        return await self._made("/responses", json=body)

    async def _new_conversation(self) -> str:
        item = {"role": "user", "content": "x"}
        return await self._made("/conversations", json={"items": [item]})

    async def _first_item(self, path: str) -> str:
        """The id of the first item of a list."""
        url = f"{self._live.url}/v1{path}"
        async with self._session.get(url, headers=self._headers) as answer:
            answer.raise_for_status()
            return str((await answer.json())["data"][0]["id"])

    async def _made(self, path: str, **request: Any) -> str:
        url = f"{self._live.url}/v1{path}"
        async with self._session.post(url, headers=self._headers, **request) as answer:
            answer.raise_for_status()
            return str((await answer.json())["id"])


async def _serve(
    live: Live, ready: list[str], started: threading.Event, stop: asyncio.Event
) -> None:
    async with aiohttp.ClientSession(auto_decompress=False) as session:
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_route("*", "/{path:.*}", _Arranger(live, session).relay)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        ready.append(f"http://127.0.0.1:{runner.addresses[0][1]}")
        started.set()
        await stop.wait()
        await runner.cleanup()


@contextmanager
def arranged(live: Live) -> Iterator[str]:
    """The relay's address while the block runs; it has no `/v1`."""
    loop, stop = asyncio.new_event_loop(), asyncio.Event()
    ready: list[str] = []
    started = threading.Event()
    thread = threading.Thread(
        target=lambda: loop.run_until_complete(_serve(live, ready, started, stop))
    )
    thread.start()
    try:
        if not started.wait(20):
            raise RuntimeError("the relay did not start")
        yield ready[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()
