"""HTTP/1.1 connections for answers: one request, one status, one body, and nothing else.

A batch makes one call a line, and a general client's sessions, cookies, redirects and header maps
cost more CPU than all else the dispatcher does with the line. Here a request is one write, the
answer goes through llhttp (`httptools`), and a connection whose answer was not read to its end is
closed. A streamed body is read as it comes (`Incoming`). Control requests stay
with aiohttp.

An answer has a bound in all of its parts: heads before it, its own, what stands between the pieces
of its body, and a body that is kept until it is whole.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from functools import partial
from typing import Final, cast

import httptools

from engine_adapter.client.addresses import Addresses
from engine_adapter.client.engine_address import EngineAddress
from engine_adapter.client.incoming import Incoming
from service.bounded_answer import MAX_HEAD_BYTES, MAX_HEADS_BEFORE

CONNECT_TIMEOUT_S: Final = 5.0
# Shorter than the 5 s after which the engine's server closes an idle connection: a request never
# meets a connection that is just being closed.
KEEP_ALIVE_S: Final = 3.0
MAX_ANSWER_BYTES: Final = 256 * 1024 * 1024
"""A whole answer; the longest that a model of 128 K tokens gives, with 20 alternatives each."""

PIECE_FRAME_BYTES: Final = 64
"""What may stand around a piece of a body; a stream's pieces are a token each."""


class NotConnected(ConnectionError):
    """No connection came about: the request has not been sent."""


class _TooManyHeads(Exception):
    """Ends the parser's run over heads that come before the answer."""


class Connection(asyncio.Protocol):
    """One connection.

    Invariant: from `ask` to `end` one of `_answer` and `incoming` is set, and never both.

    Attributes:
        incoming: The answer that is read as it comes.
    """

    def __init__(self, max_answer_bytes: int = MAX_ANSWER_BYTES) -> None:
        self._max_answer_bytes = max_answer_bytes
        self.idle_since_s = 0.0
        self.reusable = True
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[tuple[int, bytes]] | None = None
        self.incoming: Incoming | None = None
        self._ended: Callable[[], None] | None = None
        self._held = False
        self._parser = httptools.HttpResponseParser(self)
        self._body: list[bytes] = []
        self._num_body = self._num_frame = self._num_before = 0

    @property
    def answer(self) -> asyncio.Future[tuple[int, bytes]]:
        """Status and body of the answer, or the `ConnectionError` by which it was lost."""
        assert self._answer is not None
        return self._answer

    def ask(self, request: bytes, *, stream: bool = False) -> None:
        """Send a whole request, in one piece: the event loop has a short way for that."""
        self._num_body = self._num_frame = self._num_before = 0
        if stream:
            self.incoming = Incoming()
        else:
            self._answer = asyncio.get_running_loop().create_future()
        if self._transport is None or self._transport.is_closing():
            self._fail(ConnectionResetError("the engine closed the connection"))
        else:
            self._transport.write(request)

    def end(self) -> bool:
        """The answer was read or is given up; whether the connection may be used again."""
        if self.incoming is not None:
            # One that is held has what nobody read, and would stay silent for whoever comes next.
            self.reusable = self.reusable and self.incoming.ended and not self._held
            self.incoming = None
            if not self.reusable:
                self.close()
            return self.reusable
        answer, self._answer = self._answer, None
        if answer is None or not answer.done() or answer.cancelled() or answer.exception():
            # What else may come on it belongs to nobody.
            self.reusable = False
        if not self.reusable:
            self.close()
        return self.reusable

    def when_ended(self, then: Callable[[], None]) -> None:
        """Call `then` at the end of a streamed answer of which nothing more is wanted."""
        if self.incoming is None or self.incoming.ended or not self.reusable:
            then()
        else:
            self._ended = then

    async def rest(self, rest_s: float) -> None:
        """Leave what comes in the kernel for a moment: one wake-up for all of it."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        transport.pause_reading()
        try:
            await asyncio.sleep(rest_s)
        finally:
            if not transport.is_closing():
                transport.resume_reading()

    async def read(self) -> bytes:
        """Everything that has come of a streamed answer since the last read; see `Incoming`."""
        assert self.incoming is not None
        data = await self.incoming.read()
        if self._held and self._transport is not None and not self._transport.is_closing():
            self._held = False
            self._transport.resume_reading()
        return data

    def close(self) -> None:
        self.reusable = False
        if self._transport is not None:
            self._transport.abort()

    # --- called by the event loop -------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass

    def data_received(self, data: bytes) -> None:
        if self._answer is None and self.incoming is None:
            self.close()  # nobody asked
            return
        self._num_frame += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail(ConnectionError(f"the engine does not speak HTTP: {error}"))
            self.close()
        if self._num_frame > MAX_HEAD_BYTES or self._num_body > self._max_answer_bytes:
            self._fail(ConnectionError("the engine's answer does not end"))
            self.close()
        incoming = self.incoming
        if incoming is not None:
            incoming.wake()
            if incoming.full and self._transport is not None and not self._transport.is_closing():
                self._held = True
                self._transport.pause_reading()

    def connection_lost(self, error: Exception | None) -> None:
        self.reusable = False
        self._fail(ConnectionResetError("the engine closed the connection"))

    def _fail(self, error: ConnectionError) -> None:
        if self.incoming is not None:
            self.incoming.fail(error)
        self._note_end()
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)

    def _note_end(self) -> None:
        then, self._ended = self._ended, None
        if then is not None:
            then()

    # --- called by the parser -----------------------------------------------------------------

    def on_message_begin(self) -> None:
        """An answer begins; what follows a whole one belongs to nobody."""
        whole = self.incoming is not None and self.incoming.ended
        if whole or (self._answer is not None and self._answer.done()):
            self.reusable = False
        self._body = []

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        self._num_before += 1
        if self._num_before > MAX_HEADS_BEFORE:
            raise _TooManyHeads
        if self.incoming is not None and status >= 200 and not self.incoming.status.done():
            self.incoming.status.set_result(status)

    def on_body(self, body: bytes) -> None:
        """A piece of its body."""
        self._num_frame = max(0, self._num_frame - len(body) - PIECE_FRAME_BYTES)
        if self.incoming is None:
            self._num_body += len(body)
            self._body.append(body)
        else:
            self.incoming.feed(body)

    def on_message_complete(self) -> None:
        """It has arrived whole; an answer that nobody waits for ends the connection."""
        status = self._parser.get_status_code()
        if status < 200:
            return
        if not self._parser.should_keep_alive():
            self.reusable = False
        if self.incoming is not None and not self.incoming.ended:
            self.incoming.ended = True
            self._note_end()
            return
        if self._answer is None or self._answer.done():
            self.close()
            return
        self._answer.set_result((status, b"".join(self._body)))
        self._body = []


class Connections:
    """As many connections to one address as there are requests at once; used ones are kept.

    Args:
        url: See `engine_address`.
        key: The API key that it wants; empty for none.
        keep_alive_s: How long a connection may lie idle and be used again.
        max_answer_bytes: Of an answer that is no stream.
    """

    def __init__(
        self,
        url: str,
        key: str = "",
        *,
        keep_alive_s: float = KEEP_ALIVE_S,
        max_answer_bytes: int = MAX_ANSWER_BYTES,
    ) -> None:
        self._max_answer_bytes = max_answer_bytes
        address = EngineAddress.parse(url)
        self._keep_alive_s = keep_alive_s
        self._host = address.host
        self.addresses = Addresses(self._host)
        self._secure = ssl.create_default_context() if address.scheme == "https" else None
        self._port = address.port
        self._prefix = address.prefix
        proof = f"Authorization: Bearer {key}\r\n" if key else ""
        self._head = (
            f"Host: {address.netloc}\r\n{proof}"
            "Content-Type: application/json\r\nAccept: */*\r\nContent-Length: "
        )
        self._idle: list[Connection] = []
        self._ending: set[Connection] = set()

    async def send(
        self, path: str, body: bytes, *, stream: bool = False, traceparent: str | None = None
    ) -> Connection:
        """Send a JSON body; the connection on which it is answered, to be given back to `release`.

        A streamed answer comes as the connection's `incoming`, any other as its `answer`.

        Raises:
            NotConnected: Nothing was sent.
        """
        connection = self._take() or await self._connect()
        traced = f"traceparent: {traceparent}\r\n" if traceparent else ""
        head = f"POST {self._prefix}{path} HTTP/1.1\r\n{traced}{self._head}{len(body)}\r\n\r\n"
        connection.ask(head.encode() + body, stream=stream)
        return connection

    def release(self, connection: Connection) -> None:
        """The answer was read, or is given up: the connection is kept for others, or closed."""
        if connection.end():
            connection.idle_since_s = asyncio.get_running_loop().time()
            self._idle.append(connection)

    def release_at_end(self, connection: Connection) -> None:
        """The stream has said its last word, and only HTTP's own end is perhaps still to come."""
        self._ending.add(connection)

        def ended() -> None:
            self._ending.discard(connection)
            self.release(connection)

        connection.when_ended(ended)

    def close(self) -> None:
        """Close what is idle; what is under way is its caller's."""
        self.addresses.close()
        for connection in list(self._ending):
            connection.close()
        for connection in self._idle:
            connection.close()
        self._idle.clear()

    def _take(self) -> Connection | None:
        """The connection used last, if it is young enough; older ones are closed."""
        oldest_s = asyncio.get_running_loop().time() - self._keep_alive_s
        while self._idle:
            connection = self._idle.pop()
            if connection.reusable and connection.idle_since_s > oldest_s:
                return connection
            connection.close()
        return None

    async def _connect(self) -> Connection:
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                return await self._connect_to_any()
        except (OSError, TimeoutError) as error:
            self.addresses.ask_again()  # it may have moved
            raise NotConnected(str(error)) from error

    async def _connect_to_any(self) -> Connection:
        """A connection to the first address that takes one."""
        loop = asyncio.get_running_loop()
        failed: OSError | None = None
        for one in await self.addresses.get():
            try:
                _, connection = await loop.create_connection(
                    partial(Connection, self._max_answer_bytes),
                    one.address,
                    self._port,
                    ssl=self._secure,
                    server_hostname=self._host if self._secure else None,
                )
            except OSError as error:
                failed = error
            else:
                return connection
        raise failed or OSError("no address")
