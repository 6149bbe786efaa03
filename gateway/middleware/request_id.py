"""Every response carries an id of ours (contract rows T-07 to T-09)."""

from __future__ import annotations

import secrets
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from engine_adapter import log_lines

_VERSION = (b"openai-version", b"2020-10-01")


class RequestIdMiddleware:
    """Outermost: puts `request_id` and `started_at` (monotonic seconds) into the scope's state.

    Also `server_send`, the server's own `send`: every middleware here cares for a response's start
    only, so a stream may send its many body messages past them.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = f"req_{secrets.token_hex(16)}"
        state = scope.setdefault("state", {})
        state["request_id"] = request_id
        log_lines.request_id.set(request_id)
        started_at = state["started_at"] = time.perf_counter()
        state["server_send"] = send
        process = scope["app"].state  # not the mounted app's, which takes its place in the scope

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                took_ms = round((time.perf_counter() - started_at) * 1000)
                headers = [
                    *message.get("headers", ()),
                    (b"x-request-id", request_id.encode()),
                    (b"openai-processing-ms", str(took_ms).encode()),
                    _VERSION,
                ]
                if "project_id" in state:
                    # Whose request it was, whatever the request's own headers said (decision 0052).
                    headers += [
                        (b"openai-organization", state["organization_id"].encode()),
                        (b"openai-project", state["project_id"].encode()),
                    ]
                if getattr(process, "stopping", False):
                    # The next request is for another gateway: this one closes idle connections.
                    headers.append((b"connection", b"close"))
                message["headers"] = headers
            await send(message)

        await self._app(scope, receive, send_with_id)
