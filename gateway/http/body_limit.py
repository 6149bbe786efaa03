"""The limits of requests' bodies, enforced before and while they are read (row T-23).

Prompts may be long: their routes read nothing before the key is known. One of their bodies has a
limit, and so have all together: many senders that are each within their own could fill the memory.
A form of the dashboard is short and has few fields: the framework parses it before anybody knows
who sends it, a byte after the other.
Bytes count when they have come, not when they are announced, and until the response has ended,
since the request built from them lives as long. Bodies of all other routes are small. What comes
compressed is decoded here, and counts as what it becomes.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope

from api.errors import (
    ApiError,
    InvalidRequest,
    Overloaded,
    PayloadTooLarge,
    UnsupportedMediaType,
)
from gateway.http.content_coding import Decoder, coding_of
from gateway.http.error_handlers import error_response
from gateway.http.refusal import LingeringResponse

# These read their body as it comes and enforce limits of their own, by purpose.
UPLOAD_PATHS = frozenset({"/files", "/v1/files", "/admin/batches"})
_PART_PATH = re.compile(r"(/v1)?/uploads/[^/]+/parts")
SMALL_BODY_BYTES = 128 * 1024
INLINE_PATHS = frozenset({"/batches", "/v1/batches"})
"""A batch may come with its requests; nothing is read before the key is known either."""
INLINE_BYTES = 4 * 1024 * 1024
FORM_BYTES = 16 * 1024
FORM_FIELDS = 256
_FORM = b"application/x-www-form-urlencoded"
_PARTED_FORM = b"multipart/"


class BodyLimits:
    """What one body may have, and all bodies of prompts together.

    Args:
        limit_bytes: Of one body; of less where no prompt is expected.
        total_limit_bytes: Of all prompts together.
        prompt_paths: Where prompts are expected.

    Invariant: `held_bytes` is what the requests in progress have sent to `prompt_paths`.
    """

    def __init__(
        self, limit_bytes: int, total_limit_bytes: int, prompt_paths: Collection[str]
    ) -> None:
        self._limit_bytes = limit_bytes
        self.total_limit_bytes = total_limit_bytes
        self.held_bytes = 0
        self._prompt_paths = frozenset(prompt_paths)

    def of(self, scope: Scope, receive: Receive) -> CountedBody | UploadedBody:
        """The body of one request; the request's state has it as `body`."""
        path = scope["path"]
        if path in UPLOAD_PATHS or _PART_PATH.fullmatch(path):
            return UploadedBody(receive)
        with_prompt = path in self._prompt_paths or path in INLINE_PATHS
        limit = self._limit_bytes
        if path not in self._prompt_paths:
            limit = min(limit, INLINE_BYTES if with_prompt else SMALL_BODY_BYTES)
        is_form = not with_prompt and _media_type(scope).startswith(_FORM)
        body = CountedBody(
            self, receive, min(limit, FORM_BYTES) if is_form else limit, is_held=with_prompt,
            is_form=is_form,
        )  # fmt: skip
        scope["state"]["body"] = body
        return body


class CountedBody:
    """One body as it comes; `release` it once its response has ended."""

    __slots__ = (
        "_decoder", "_is_form", "_is_held", "_limit_bytes", "_limits", "_num_bytes", "_num_fields",
        "_receive",
    )  # fmt: skip

    def __init__(
        self,
        limits: BodyLimits,
        receive: Receive,
        limit_bytes: int,
        *,
        is_held: bool,
        is_form: bool = False,
    ) -> None:
        self._is_form = is_form
        self._num_fields = 0
        self._limits = limits
        self._receive = receive
        self._limit_bytes = limit_bytes
        self._is_held = is_held
        self._num_bytes = 0
        self._decoder: Decoder | None = None

    def refusal(self, scope: Scope) -> Response | None:
        """The response to a body that announces too much, or a coding that is not read."""
        announced = _content_length(scope)
        try:
            if _has_body(scope) and _media_type(scope).startswith(_PARTED_FORM):
                raise UnsupportedMediaType("Only uploads are forms in parts.")
            if announced is not None and announced < 0:
                raise InvalidRequest("The Content-Length header is not a number.")
            if announced is not None and announced > self._limit_bytes:
                raise self._too_large()
            if coding := coding_of(scope):
                self._decoder = Decoder(coding)
        except ApiError as error:
            return LingeringResponse(error_response(error), Request(scope, self._receive))
        return None

    async def receive(self) -> Message:
        """ASGI's next message.

        Raises:
            PayloadTooLarge: More has come than one body may have.
            Overloaded: More has come than all may have.
            InvalidRequest: It is not of the coding that it says.
        """
        message = await self._receive()
        if message["type"] == "http.request":
            if self._decoder is not None:
                message = await self._decoded(self._decoder, message)
            else:
                self._count(len(message.get("body", b"")))
            if self._is_form:
                self._num_fields += message.get("body", b"").count(b"&")
                if self._num_fields >= FORM_FIELDS:
                    raise InvalidRequest(f"The form may have {FORM_FIELDS} fields at most.")
        return message

    async def _decoded(self, decoder: Decoder, message: Message) -> Message:
        """The message with what its bytes say; the event loop goes on after each piece."""
        pieces = []
        for piece in decoder.feed(message.get("body", b"")):
            self._count(len(piece))
            pieces.append(piece)
            await asyncio.sleep(0)
        if not message.get("more_body", False):
            decoder.end()
        return {**message, "body": b"".join(pieces)}

    def _count(self, length: int) -> None:
        self._num_bytes += length
        if self._is_held:
            self._limits.held_bytes += length
        if self._num_bytes > self._limit_bytes:
            raise self._too_large()
        if self._limits.held_bytes > self._limits.total_limit_bytes:
            raise Overloaded("Too many large requests are in progress.")

    def release(self) -> None:
        """Nothing built from it lives any more."""
        if self._is_held:
            self._limits.held_bytes -= self._num_bytes

    def forget(self) -> None:
        """What still comes is dropped, and not held."""
        self.release()
        self._is_held = False
        self._decoder = None

    def _too_large(self) -> PayloadTooLarge:
        return PayloadTooLarge(f"The request body is larger than {self._limit_bytes:,} bytes.")


class UploadedBody:
    """The form of an upload: its route reads it as it comes, and has limits of its own."""

    def __init__(self, receive: Receive) -> None:
        self.receive = receive

    def refusal(self, scope: Scope) -> Response | None:
        """The response to a form that says it is compressed: files are kept as they come."""
        try:
            if not coding_of(scope):
                return None
        except UnsupportedMediaType:
            pass
        error = UnsupportedMediaType("The form of an upload must not be compressed.")
        return LingeringResponse(error_response(error), Request(scope, self.receive))

    def release(self) -> None:
        """Nothing of it is counted here."""


def _media_type(scope: Scope) -> bytes:
    for name, value in scope["headers"]:
        if name == b"content-type":
            return bytes(value).strip().lower()
    return b""


def _has_body(scope: Scope) -> bool:
    """Some clients name a type where they send nothing."""
    return any(
        name == b"transfer-encoding" or (name == b"content-length" and value.strip(b"0"))
        for name, value in scope["headers"]
    )


def _content_length(scope: Scope) -> int | None:
    for name, value in scope["headers"]:
        if name == b"content-length":
            return int(value) if value.isdigit() else -1
    return None
