"""The limit of a request's body, enforced before and while it is read (contract row T-23)."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from engine_adapter.wire.errors import ApiError, InvalidRequest, PayloadTooLarge
from gateway.error_handlers import error_response
from gateway.refusal import LingeringResponse

# These read their body as it comes and enforce limits of their own, by purpose.
UPLOAD_PATHS = frozenset({"/files", "/v1/files", "/admin/batches"})


class BodyLimitMiddleware:
    """Refuses by the announced length, or as soon as more has come than is allowed."""

    def __init__(self, app: ASGIApp, *, limit_bytes: int) -> None:
        self._app = app
        self._limit_bytes = limit_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] != "http" or scope["path"] in UPLOAD_PATHS:
            await self._app(scope, receive, send)
            return
        limit = self._limit_bytes
        too_large = PayloadTooLarge(f"The request body is larger than {limit:,} bytes.")
        announced = _content_length(scope)
        if announced is not None and (announced < 0 or announced > limit):
            error: ApiError = too_large
            if announced < 0:
                error = InvalidRequest("The Content-Length header is not a number.")
            await LingeringResponse(error_response(error))(scope, receive, send)
            return
        if announced is not None:
            # The server never hands over more than the announced length.
            await self._app(scope, receive, send)
            return
        num_bytes = 0

        async def receive_counted() -> Message:
            nonlocal num_bytes
            message = await receive()
            if message["type"] == "http.request":
                num_bytes += len(message.get("body", b""))
                if num_bytes > limit:
                    raise too_large
            return message

        await self._app(scope, receive_counted, send)


def _content_length(scope: Scope) -> int | None:
    for name, value in scope["headers"]:
        if name == b"content-length":
            return int(value) if value.isdigit() else -1
    return None
