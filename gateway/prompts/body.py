"""A prompt's body: read once its caller is known, parsed and checked before anything is sent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from fastapi import Request

from api.chat_request import check_chat
from api.completion_request import check_completion
from api.embedding_request import check_embedding
from api.errors import InvalidRequest, UnsupportedMediaType
from api.json_input import read_object
from api.mapped_fields import mapped
from api.responses.request import check_response
from engine_adapter.client.base import (
    CHAT_PATH,
    COMPLETIONS_PATH,
    EMBEDDINGS_PATH,
    RESPONSES_PATH,
)
from gateway.http.parsing import let_go_of

SMALL_BYTES: Final = 64 * 1024
"""Bodies up to this length are not counted by their bytes."""

_CHECKS: Final[Mapping[str, Callable[[Mapping[str, Any]], None]]] = {
    CHAT_PATH: check_chat,
    COMPLETIONS_PATH: check_completion,
    EMBEDDINGS_PATH: check_embedding,
    RESPONSES_PATH: check_response,
}


def announced(request: Request) -> int | None:
    """The length that a request's head gives its body; none where it comes in chunks or coded."""
    said = request.headers.get("content-length")
    if said is not None and "content-encoding" not in request.headers:
        return int(said)  # checked by `BodyLimits`
    is_open = said is not None or "transfer-encoding" in request.headers
    return None if is_open else 0


async def json_body(request: Request) -> dict[str, Any]:
    """A small request's body as an object (rows T-15, T-16).

    Raises:
        UnsupportedMediaType: It says it is something else.
        InvalidRequest: It is not JSON, not an object, or too complex.
    """
    return checked_body(await raw_body(request))


async def raw_body(request: Request) -> bytes:
    """The bytes of a body that says it is JSON.

    Raises:
        UnsupportedMediaType: It says it is something else.
    """
    media_type = request.headers.get("content-type", "application/json").split(";")[0].strip()
    if not (media_type.lower() == "application/json" or media_type.lower().endswith("+json")):
        raise UnsupportedMediaType("The body must be application/json.")
    return await request.body()


def checked_body(raw: bytes, path: str | None = None) -> dict[str, Any]:
    """A body as an object; in our words and checked, for one of our paths. May run in a thread.

    Raises:
        InvalidRequest: It is not JSON, not an object, too complex, or does not pass the checks.
    """
    made = read_object(raw)
    if path is not None:
        made = mapped(path, made)
        try:
            _CHECKS[path](made)
        except InvalidRequest:
            let_go_of(made)  # else all of it goes in one step, where the error ends
            raise
    return made
