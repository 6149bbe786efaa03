"""One script on a Valkey server, run over a few kept connections.

Every limited request waits for it. redis-py's client asks a pool, a retry policy and two recorders
around each command and starts a task per write; of it are used here what cannot be done better:
connections, their handshake, and the protocol.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from hashlib import sha1
from typing import Any, Final

from redis.asyncio import Connection
from redis.exceptions import ConnectionError, NoScriptError, ResponseError

from service.broker import Broker

MAX_CONNECTIONS: Final = 8
"""Each is used for a fraction of a millisecond; further requests wait their turn."""

TIMEOUT_S: Final = 0.25
"""How long a request may wait for its turn, a connection or an answer before it goes without."""


class Script:
    """A script and the connections it runs over. Create it inside the event loop that uses it.

    Invariant: a connection is either idle or in one call's hands; one whose answer was not read
    is closed.
    """

    def __init__(self, broker: Broker, text: str, *, timeout_s: float = TIMEOUT_S) -> None:
        self._text = text
        self._timeout_s = timeout_s
        self._sha = sha1(text.encode(), usedforsecurity=False).hexdigest()
        self._factory = broker.pool(socket_timeout=None, socket_connect_timeout=timeout_s)
        self._idle: list[Connection] = []
        self._room = asyncio.Semaphore(MAX_CONNECTIONS)

    async def run(self, keys: list[str], arguments: list[str | int]) -> Any:
        """What the script returns.

        Raises:
            RedisError: The server refused it or went away; it may have run all the same.
            TimeoutError: No turn, no connection or no answer within the time limit.
            OSError: There is no connection.
        """
        rest = (len(keys), *keys, *arguments)
        if self._room.locked():
            async with asyncio.timeout(self._timeout_s):
                await self._room.acquire()
        else:
            await self._room.acquire()  # waits for nobody
        try:
            return await self._ask("EVALSHA", self._sha, *rest)
        except NoScriptError:
            # The server is new, or has forgotten what it had loaded.
            return await self._ask("EVAL", self._text, *rest)
        finally:
            self._room.release()

    async def close(self) -> None:
        """Close what is idle, and the way to new ones."""
        await self._drop_idle()
        await self._factory.disconnect()

    async def _drop_idle(self) -> None:
        while self._idle:
            with suppress(OSError):
                await self._idle.pop().disconnect(nowait=True)

    async def _ask(self, *command: str | int) -> Any:
        if self._idle:
            try:
                return await self._ask_over(self._idle.pop(), command)
            except TimeoutError:
                raise
            except (ConnectionError, OSError):
                # The server has closed it since it was last used; the others are no better.
                await self._drop_idle()
        made: Connection = self._factory.make_connection()  # type: ignore[no-untyped-call]
        return await self._ask_over(made, command)

    async def _ask_over(self, connection: Connection, command: tuple[str | int, ...]) -> Any:
        try:
            if not connection.is_connected:
                async with asyncio.timeout(self._timeout_s):
                    await connection.connect()  # type: ignore[no-untyped-call]
            async with asyncio.timeout(self._timeout_s):
                await connection.send_command(*command, check_health=False)
                answer = await connection.read_response()
        except ResponseError:
            self._idle.append(connection)
            raise
        except BaseException:
            # Cancelled or lost: what else may come on it belongs to nobody.
            await connection.disconnect(nowait=True)
            raise
        self._idle.append(connection)
        return answer
