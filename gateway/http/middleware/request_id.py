"""Every response carries an id of ours (rows T-07 to T-09)."""

from __future__ import annotations

import secrets
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service import log_lines

_VERSION = (b"openai-version", b"2020-10-01")


def note_request(scope: Scope, send: Send) -> None:
    """Put `request_id` and `started_at` (monotonic seconds) into the scope's state.

    Also `server_send`, the server's own `send`: every layer here cares for a response's start
    only, so a stream may send its many body messages past them.
    """
    request_id = f"req_{secrets.token_hex(16)}"
    state = scope.setdefault("state", {})
    state["request_id"] = request_id
    log_lines.request_id.set(request_id)
    state["started_at"] = time.perf_counter()
    state["server_send"] = send


def add_headers(start: Message, scope: Scope, *, stopping: bool) -> None:
    """Add to a response's start what every response says of its request."""
    state = scope["state"]
    took_ms = round((time.perf_counter() - state["started_at"]) * 1000)
    headers = [
        *start.get("headers", ()),
        (b"x-request-id", state["request_id"].encode()),
        (b"openai-processing-ms", b"%d" % took_ms),
        _VERSION,
    ]
    if "project_id" in state:
        # Whose request it was, whatever the request's own headers said.
        headers += [
            (b"openai-organization", state["organization_id"].encode()),
            (b"openai-project", state["project_id"].encode()),
        ]
    if stopping:
        # The next request is for another gateway: this one closes idle connections.
        headers.append((b"connection", b"close"))
    start["headers"] = headers


class RequestIdMiddleware:
    """Outermost: `note_request` before the app, `add_headers` to what it answers."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        note_request(scope, send)
        process = scope["app"].state  # not the mounted app's, which takes its place in the scope

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                add_headers(message, scope, stopping=getattr(process, "stopping", False))
            await send(message)

        await self._app(scope, receive, send_with_id)
