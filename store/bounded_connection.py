"""Connections that do not wait forever for a server that hangs.

A stopped Postgres keeps its sockets open and acknowledges what comes: no keep-alive and no
`statement_timeout` notices it. So each wait for the server has a limit of its own. At its end the
socket is shut, and the statement ends in the same `OperationalError` as with a server that died;
a cancelled wait, which psycopg prolongs by asking the server to drop the statement, too.

The limit has two halves, the second of which begins when the loop has noticed the end of the first.
A loop that stood still (a host that was paused, or starved) runs its timers before it reads its
sockets: with one timer it would shut those whose answer has come.
"""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import suppress
from typing import Any, Final, TypeVar

from psycopg import AsyncConnection
from psycopg.abc import PQGen

ANSWER_LIMIT_S: Final = 8.0
"""Where a person waits."""
WORK_LIMIT_S: Final = 60.0
"""Where a single statement may be long work: a worker's."""
CONNECT_LIMIT_S: Final = 3
T = TypeVar("T")


class BoundedConnection(AsyncConnection[Any]):
    """Waits `limit_s` at most for each answer of the server."""

    limit_s: float = ANSWER_LIMIT_S

    @classmethod
    def within(cls, limit_s: float) -> type[BoundedConnection]:
        """The same with another limit."""
        return type(cls.__name__, (cls,), {"limit_s": limit_s})

    async def wait(self, gen: PQGen[T], *args: Any, **kwargs: Any) -> T:
        """See `psycopg.AsyncConnection.wait`.

        Raises:
            psycopg.OperationalError: The server did not answer in time, or is gone.
        """
        loop, half_s = asyncio.get_running_loop(), self.limit_s / 2
        timer: asyncio.TimerHandle

        def go_on() -> None:
            nonlocal timer
            timer = loop.call_later(half_s, self._shut)

        timer = loop.call_later(half_s, go_on)
        try:
            return await super().wait(gen, *args, **kwargs)
        finally:
            timer.cancel()

    def _shut(self) -> None:
        # psycopg owns the descriptor: the socket is shut through a second one.
        with suppress(OSError), socket.socket(fileno=os.dup(self.pgconn.socket)) as ours:
            ours.shutdown(socket.SHUT_RDWR)
