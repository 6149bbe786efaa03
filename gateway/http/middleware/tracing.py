"""One span per request, below the caller's where it names one; only there while traces are on."""

from __future__ import annotations

from opentelemetry.trace import SpanKind
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.http.middleware.access_log import route_of
from service import tracing

_HEADER = tracing.HEADER.encode()


class TracingMiddleware:
    """Names a span by method and route; it ends with the response."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        parent = next((value for name, value in scope["headers"] if name == _HEADER), b"")
        method = scope["method"]
        facts = {
            "http.request.method": method,
            "coserve.request_id": scope["state"]["request_id"],
        }
        with tracing.span(method, SpanKind.SERVER, facts, parent.decode("latin-1")) as span:

            async def send_and_note(message: Message) -> None:
                if message["type"] == "http.response.start":
                    span.set_attribute("http.response.status_code", message["status"])
                await send(message)

            try:
                await self._app(scope, receive, send_and_note)
            finally:
                route = route_of(scope)
                span.update_name(f"{method} {route}")
                span.set_attribute("http.route", route)
