"""Long answers in slices, so that no list holds up the streams of others.

The event loop serves everybody: what one answer takes of it at a stretch is what every open stream
waits. So a long list is made an item at a time, lets the others go on every `SLICE_S`, and leaves
in pieces that the connection takes when it has room.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from api.json_output import dump

SLICE_S: Final = 0.002
PIECE_BYTES: Final = 64 * 1024

T = TypeVar("T")


async def dumped(items: Iterable[T], dump: Callable[[T], bytes]) -> list[bytes]:
    """Each item as JSON; the event loop goes on in between, and once more at the end."""
    made: list[bytes] = []
    until_s = time.monotonic() + SLICE_S
    for item in items:
        if time.monotonic() >= until_s:
            await asyncio.sleep(0)
            until_s = time.monotonic() + SLICE_S
        made.append(dump(item))
    await asyncio.sleep(0)
    return made


class ListResponse(Response):
    """A page of things that are JSON already, in the five keys of every list.

    Args:
        items: The things.
        ids: Of the first and the last; none for an empty page.
        has_more: Whether another page follows.
    """

    media_type = "application/json"

    def __init__(
        self, items: Sequence[bytes], ids: tuple[str, str] | None, *, has_more: bool
    ) -> None:
        self._pieces = _pieces(items, ids, has_more)
        super().__init__()
        self.headers["content-length"] = str(sum(len(piece) for piece in self._pieces))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del scope, receive
        head = {"status": self.status_code, "headers": self.raw_headers}
        await send({"type": "http.response.start", **head})
        for piece in self._pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


def _pieces(items: Sequence[bytes], ids: tuple[str, str] | None, has_more: bool) -> list[bytes]:
    """The body, cut between items."""
    first, last = ids if ids is not None else (None, None)
    tail: dict[str, Any] = {"first_id": first, "last_id": last, "has_more": has_more}
    pieces = [bytearray(b'{"object":"list","data":[')]
    for i, item in enumerate(items):
        if len(pieces[-1]) >= PIECE_BYTES:
            pieces.append(bytearray())
        if i:
            pieces[-1] += b","
        pieces[-1] += item
    pieces[-1] += b"]," + dump(tail)[1:]
    return [bytes(piece) for piece in pieces]
