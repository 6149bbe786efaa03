"""How much a server may say in one answer, where the client is aiohttp.

aiohttp bounds a head and not how many come before the answer (1xx), and hands on a body whose
reader may stop while the connection is read on: chunk extensions and trailers are nobody's bytes.
So the bytes of the connection are counted. What comes before the answer is parsed in small pieces:
a quarter of a megabyte, one read of a socket, holds ten thousand heads.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, Final, cast

import aiohttp
from aiohttp.client_proto import ResponseHandler

MAX_HEAD_BYTES: Final = 64 * 1024
"""Of an answer's head and all that come before it."""

MAX_HEADS_BEFORE: Final = 32
_PIECE_BYTES: Final = 4096


class AnswerTooLong(aiohttp.ClientPayloadError):
    """A server says more than its answer may have."""


class _BoundedAnswer(ResponseHandler):
    """Ends a connection at `limit_bytes` of one answer, heads and framing included.

    Invariant: `_has_begun` once the head of the answer itself has come.
    """

    def __init__(self, limit_bytes: int, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop=loop)
        self._limit_bytes = limit_bytes
        self._num_bytes = self._num_before = 0
        self._has_begun = False

    def set_response_params(self, **params: Any) -> None:
        """A request is about to be sent on it."""
        self._num_bytes = self._num_before = 0
        self._has_begun = False
        super().set_response_params(**params)

    def feed_data(self, data: Any, size: int = 0) -> None:
        """A head has come: the answer's, or one before it."""
        self._has_begun = self._has_begun or data[0].code >= 200
        self._num_before += not self._has_begun
        super().feed_data(data, size)

    def data_received(self, data: bytes) -> None:
        if not data:
            super().data_received(data)
        while data and not self._is_over:
            length = len(data) if self._has_begun else _PIECE_BYTES
            length = min(length, self._limit_bytes - self._num_bytes)
            piece, data = data[:length], data[length:]
            self._num_bytes += len(piece)
            super().data_received(piece)
            if self._is_over or (data and self._num_bytes >= self._limit_bytes):
                self._end()
                return

    @property
    def _is_over(self) -> bool:
        return self._num_before > MAX_HEADS_BEFORE or (
            self._num_bytes > (self._limit_bytes if self._has_begun else MAX_HEAD_BYTES)
        )

    def _end(self) -> None:
        """A status that has come is still read: what follows it is nobody's."""
        error = AnswerTooLong("the answer does not end")
        if self._payload is not None and not self._payload.is_eof():
            self._payload.set_exception(error)
        self.set_exception(error)
        if self.transport is not None:
            self.transport.abort()


def bounded(connector: aiohttp.TCPConnector, limit_bytes: int) -> aiohttp.TCPConnector:
    """The connector, each of whose answers has so many bytes at most. Call it inside the loop."""
    # What reads a connection is no setting of the library.
    reader = cast("type[ResponseHandler]", partial(_BoundedAnswer, limit_bytes))
    connector._factory = partial(reader, loop=asyncio.get_running_loop())
    return connector
