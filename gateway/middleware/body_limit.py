"""The limits of requests' bodies, enforced before and while they are read (contract row T-23).

Prompts may be long: their routes read nothing before the key is known. One of their bodies has a
limit, and so have all together: many senders that are each within their own could fill the memory.
Bytes count when they have come, not when they are announced, and until the response has ended,
since the request built from them lives as long. Bodies of all other routes are small.
"""

from __future__ import annotations

import re

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from engine_adapter.client.base import (
    CHAT_PATH,
    COMPLETIONS_PATH,
    EMBEDDINGS_PATH,
    RESPONSES_PATH,
)
from engine_adapter.wire.errors import ApiError, InvalidRequest, Overloaded, PayloadTooLarge
from gateway.error_handlers import error_response
from gateway.refusal import LingeringResponse

# These read their body as it comes and enforce limits of their own, by purpose.
UPLOAD_PATHS = frozenset({"/files", "/v1/files", "/admin/batches"})
_PART_PATH = re.compile(r"(/v1)?/uploads/[^/]+/parts")
PROMPT_PATHS = frozenset(
    prefix + path.removeprefix("/v1")
    for path in (CHAT_PATH, COMPLETIONS_PATH, EMBEDDINGS_PATH, RESPONSES_PATH)
    for prefix in ("", "/v1")
)
SMALL_BODY_BYTES = 128 * 1024


class BodyLimitMiddleware:
    """Refuses by the announced length, or as soon as more has come than is allowed.

    Invariant: `_held_bytes` is what the requests in progress have sent to `PROMPT_PATHS`.
    """

    def __init__(self, app: ASGIApp, *, limit_bytes: int, total_limit_bytes: int) -> None:
        self._app = app
        self._limit_bytes = limit_bytes
        self._total_limit_bytes = total_limit_bytes
        self._held_bytes = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        if scope["type"] != "http" or _reads_by_itself(scope["path"]):
            await self._app(scope, receive, send)
            return
        with_prompt = scope["path"] in PROMPT_PATHS
        limit = self._limit_bytes if with_prompt else min(self._limit_bytes, SMALL_BODY_BYTES)
        too_large = PayloadTooLarge(f"The request body is larger than {limit:,} bytes.")
        announced = _content_length(scope)
        if announced is not None and (announced < 0 or announced > limit):
            error: ApiError = too_large
            if announced < 0:
                error = InvalidRequest("The Content-Length header is not a number.")
            refusal = LingeringResponse(error_response(error), Request(scope, receive))
            await refusal(scope, receive, send)
            return
        num_bytes = 0

        async def receive_counted() -> Message:
            nonlocal num_bytes
            message = await receive()
            if message["type"] == "http.request":
                length = len(message.get("body", b""))
                num_bytes += length
                if with_prompt:
                    self._held_bytes += length
                if num_bytes > limit:
                    raise too_large
                if self._held_bytes > self._total_limit_bytes:
                    raise Overloaded("Too many large requests are in progress.")
            return message

        try:
            await self._app(scope, receive_counted, send)
        finally:
            if with_prompt:
                self._held_bytes -= num_bytes


def _reads_by_itself(path: str) -> bool:
    return path in UPLOAD_PATHS or _PART_PATH.fullmatch(path) is not None


def _content_length(scope: Scope) -> int | None:
    for name, value in scope["headers"]:
        if name == b"content-length":
            return int(value) if value.isdigit() else -1
    return None
