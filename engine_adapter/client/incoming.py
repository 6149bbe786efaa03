"""The body of a streamed answer as it comes: whole reads out of many small pieces.

A stream's chunks are HTTP chunks of their own. A general client calls into Python several times for
each; here a piece costs one call, and whoever waits is woken once for all that a read of the socket
brought.
"""

from __future__ import annotations

import asyncio
from typing import Final

MOST_WAITING_BYTES: Final = 64 * 1024
"""More than that is left in the kernel, and from there to the sender."""


class Incoming:
    """Pieces, until the answer's end or the connection's.

    Invariant: once `ended` or failed, no piece comes any more; what had come can still be read.

    Attributes:
        status: Set when the head of the answer has come, or to the error by which it did not.
        ended: The answer has come whole.
        num_bytes: What has come and was not read.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.status: asyncio.Future[int] = self._loop.create_future()
        self.ended = False
        self._pieces: list[bytes] = []
        self.num_bytes = 0
        self._error: ConnectionError | None = None
        self._waiter: asyncio.Future[None] | None = None

    @property
    def full(self) -> bool:
        """So much waits to be read that no more should come."""
        return self.num_bytes > MOST_WAITING_BYTES

    async def read(self) -> bytes:
        """Everything that has come since the last read; nothing at the answer's end.

        Raises:
            ConnectionError: The connection was lost before the end.
        """
        while not self._pieces:
            if self._error is not None:
                raise self._error
            if self.ended:
                return b""
            self._waiter = self._loop.create_future()
            await self._waiter
        data = b"".join(self._pieces)
        self._pieces.clear()
        self.num_bytes = 0
        return data

    def feed(self, piece: bytes) -> None:
        """A piece has come; `wake` follows."""
        self._pieces.append(piece)
        self.num_bytes += len(piece)

    def wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def fail(self, error: ConnectionError) -> None:
        """No more will come, and it was not all."""
        if self.ended:
            return
        self._error = error
        if not self.status.done():
            self.status.set_exception(error)
            self.status.exception()  # looked at, whether anybody waits for it or not
        self.wake()
