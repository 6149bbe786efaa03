"""One client's connection: how long it may take, how much it may send before it is known.

uvicorn's own protocol has one time limit, for idle connections. A client that sends its head or
its body a byte at a time, or does not read what it asked for, would hold a connection, and with it
memory and perhaps a slot in an engine, for as long as it likes. The subclass below notes when what
began; `sweep`, once a second, ends what took too long: no timer per request.

    head     from the first byte (or the connection's begin) to the empty line: `head_s`
    body     silence of `body_s`, or slower than `MIN_BODY_RATE` on average; time in which we do
             not read (the file store is slow) does not count
    answer   no limit here: the engine has its own
    reading  the write buffer is over its mark for `write_s`: the connection is cut, by which the
             request's work is cancelled and aborted in the engine
"""

from __future__ import annotations

import asyncio
import re
import secrets
import socket
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from math import inf
from typing import Any, ClassVar, Final, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from api.errors import (
    ApiError,
    HeadTooLarge,
    InvalidRequest,
    Overloaded,
    RequestTimeout,
    TargetTooLong,
    error_body,
)
from api.json_output import dump
from gateway.http.disconnect import WHEN_GONE
from gateway.http.per_address_limits import ConnectionCount
from gateway.http.reading import PIECE_BYTES, ReadingTurns
from gateway.http.transport import HeadWithBody

MAX_HEAD_BYTES: Final = 32 * 1024
MAX_HEADERS: Final = 100
MAX_TARGET_BYTES: Final = 8 * 1024
MIN_BODY_RATE: Final = 1024
"""Bytes a second."""

UNSENT_BYTES: Final = 128 * 1024
"""What the kernel may hold of an answer before it has sent it; more waits in its source."""

_NOTHING: Final = memoryview(b"")
_LINGER_S = 2.0
_TCP_NOTSENT_LOWAT = 25
_HEAD_TOO_LARGE = HeadTooLarge(
    f"The request's head may have {MAX_HEADERS} headers and {MAX_HEAD_BYTES:,} bytes at most."
)
_HOST: Final = re.compile(rb"[A-Za-z0-9._~%!$&'()*+;=-]*(:[0-9]*)?|\[[0-9A-Fa-f:.]+\](:[0-9]*)?")
_WHOLE_TARGET: Final = re.compile(rb"[A-Za-z][A-Za-z0-9+.-]*://([^/?#]*)")
"""A target that names a host by itself."""
_HOST_UNCLEAR = InvalidRequest("The request must name one host, once.", code="invalid_http")
_TARGET_TOO_LONG = TargetTooLong(f"The URL may have {MAX_TARGET_BYTES:,} bytes at most.")


@dataclass(frozen=True)
class ConnectionLimits:
    """What a connection may take, in seconds, and how many there may be.

    Attributes:
        per_address: Counts them by the address they come from.
        on_cut: Called with one word whenever a connection is refused or ended for its behaviour.
        reading: When what has come of them is parsed.
    """

    head_s: float = 10.0
    body_s: float = 30.0
    write_s: float = 60.0
    max_connections: int = 4096
    per_address: ConnectionCount = field(default_factory=lambda: ConnectionCount(4096))
    on_cut: Callable[[str], None] = field(default=lambda _: None)
    reading: ReadingTurns = field(default_factory=ReadingTurns)


class _Refused(Exception):
    """Ends the parser's run over a request that will be refused."""


class GuardedProtocol(HttpToolsProtocol):
    """uvicorn's protocol with limits.

    Invariants: `_head_due` is finite exactly while a head is awaited or incomplete; `_in_body`
    while a body is; both only before the request is complete. `_told` is called once at most.
    """

    limits: ClassVar[ConnectionLimits] = ConnectionLimits()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        whole = HeadWithBody(transport, self.loop)
        super().connection_made(cast(asyncio.Transport, whole))
        self._source = whole
        self._unread = _NOTHING
        self._is_waiting = False
        self._num_plain = 0
        self._head_due = self.loop.time() + self.limits.head_s
        self._num_raw = self._num_head = 0
        self._begun = self._in_body = False
        self._host: bytes | None = None
        self._body_from = self._heard_at = self._inspected_at = self.loop.time()
        self._num_body = 0
        self._stalled_at: float | None = None
        self._dropping = self._gone = False
        self._told: Callable[[], None] | None = None
        self._refusal: ApiError | None = None
        _set_options(transport.get_extra_info("socket"), self.limits)
        peer = transport.get_extra_info("peername")
        self._address = str(peer[0]) if peer else ""
        num_free = self.limits.max_connections - len(self.connections)
        may_have = self.limits.per_address.opened(self._address, num_free)
        if not may_have or num_free < 0:
            self._refuse(Overloaded("Too many connections are open."), "crowded")

    def connection_lost(self, exc: Exception | None) -> None:
        self.limits.per_address.closed(self._address)
        super().connection_lost(exc)
        self._tell_gone()

    def when_gone(self, then: Callable[[], None] | None) -> None:
        """See `disconnect.WhenGone`: the request being served is told by a call, no task.

        There is one at a time: those that are pipelined wait for the one ahead of them.
        """
        self._told = then
        if self._gone:
            self._tell_gone()

    def _tell_gone(self) -> None:
        self._gone = True
        told, self._told = self._told, None
        if told is not None:
            told()

    def data_received(self, data: bytes) -> None:
        if self._dropping:
            return
        if self._in_body:
            self._heard_at = self.loop.time()
        elif self._head_due == inf and self._idle:
            # The next request on a kept connection; perhaps only an empty line before it.
            self._head_due = self.loop.time() + self.limits.head_s
        self._unread = memoryview(bytes(self._unread) + data if self._unread else data)
        self._read_on()

    def _read_on(self) -> None:
        """Have what has come parsed, a piece at a time, unless that is being done."""
        if self._unread and not self._is_waiting:
            self._is_waiting = True
            self.limits.reading.run(self._address, self._parse_piece)
        self._source.hold(is_held=bool(self._unread))

    def _parse_piece(self) -> bool:
        """Parse a piece; whether another may follow at once.

        None does before the requests are answered that wait for the one ahead of them: each is
        work, and what is made of it is kept.
        """
        if not self.pipeline and not self._gone:
            length = max(self._num_plain, PIECE_BYTES)
            piece, self._unread = self._unread[:length], self._unread[length:]
            self._feed(piece)
        if self._gone or self._dropping or self.transport.is_closing():
            self._unread = _NOTHING
        self._is_waiting = bool(self._unread) and not self.pipeline
        if not self._is_waiting:
            self._source.hold(is_held=bool(self._unread))
        return self._is_waiting

    def _feed(self, piece: memoryview) -> None:
        if self._dropping or self.transport.is_closing():
            return
        self._num_raw += len(piece)
        super().data_received(cast(bytes, piece))  # the parser takes any buffer
        if self._head_due < inf and self._num_raw > MAX_HEAD_BYTES and not self._dropping:
            self._refuse(_HEAD_TOO_LARGE, "head")

    def on_response_complete(self) -> None:
        """The next request of those that wait is served, and what follows them is parsed."""
        super().on_response_complete()
        if not self.transport.is_closing():
            self._read_on()

    def on_message_begin(self) -> None:
        """A request's first byte; the limit of its head counts from here."""
        super().on_message_begin()
        self._head_due = self.loop.time() + self.limits.head_s
        self._num_head, self._begun, self._host = 0, True, None
        self._num_plain = 0

    def on_url(self, url: bytes) -> None:
        """A piece of the request's target."""
        super().on_url(url)
        if len(self.url) > MAX_TARGET_BYTES:
            self._stop(_TARGET_TOO_LONG)

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        self._num_head += len(name) + len(value)
        if len(name) == 4 and name.lower() == b"host":
            # A proxy may go by another one of several than we do.
            if self._host is not None or not _HOST.fullmatch(value):
                self._stop(_HOST_UNCLEAR)
            self._host = value
        elif len(name) == 14 and name.lower() == b"content-length" and value.isdigit():
            self._num_plain = int(value)
        if len(self.headers) > MAX_HEADERS or self._num_head > MAX_HEAD_BYTES:
            self._stop(_HEAD_TOO_LARGE)

    def on_headers_complete(self) -> None:
        """The head is complete: the request is served from here on."""
        whole = _WHOLE_TARGET.match(self.url)
        if (whole and whole[1].lower() != (self._host or b"").lower()) or (
            self._host is None and self.parser.get_http_version() == "1.1"
        ):
            self._stop(_HOST_UNCLEAR)
        self._head_due = inf
        self._num_raw = self._num_body = 0
        self._begun, self._in_body = False, True
        self._body_from = self._heard_at = self._inspected_at = self.loop.time()
        self.scope["state"][WHEN_GONE] = self.when_gone
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        self._num_body += len(body)
        self._num_plain = max(0, self._num_plain - len(body))
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._in_body = False
        self._num_raw = self._num_plain = 0
        if self._idle:
            # Answered before it was read: uvicorn's limit of idle time does not count any more.
            self._head_due = self.loop.time() + self.limits.head_s
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """The parser has stopped: at a limit of ours, or at what is no HTTP."""
        refusal = self._refusal
        if refusal is None:
            self._refuse(
                InvalidRequest("The request is not valid HTTP.", code="invalid_http"), "malformed"
            )
        else:
            self._refuse(refusal, "malformed" if refusal is _HOST_UNCLEAR else "head")

    def pause_writing(self) -> None:
        """The client does not read as fast as we write."""
        super().pause_writing()
        self._stalled_at = self.loop.time()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stalled_at = None

    def check_time(self, now: float) -> None:
        """End what took too long."""
        if self._stalled_at is None and self.transport.is_closing():
            # Closed, but what is left to send is not read: that has its limit too.
            self._stalled_at = now
        if self._stalled_at is not None and now - self._stalled_at > self.limits.write_s:
            self._cut("reading")
        elif self._head_due < now and self._is_ours_to_read:
            # Pipelined: it is we who do not read on before the request ahead of it is answered.
            self._head_due = now + self.limits.head_s
        elif self._head_due < now:
            self._late("head", answer=self._begun or self._num_raw > 0)
        elif self._in_body:
            self._inspect_body(now)
        self._inspected_at = now

    def _inspect_body(self, now: float) -> None:
        if self._is_ours_to_read:
            self._body_from += now - self._inspected_at
            self._heard_at = now
            return
        took_s = now - self._body_from
        slow = took_s > self.limits.body_s and self._num_body < MIN_BODY_RATE * took_s
        if slow or now - self._heard_at > self.limits.body_s:
            self._late("body", answer=True)

    @property
    def _is_ours_to_read(self) -> bool:
        """It is we who do not read on."""
        return bool(self.flow.read_paused or self._unread)

    @property
    def _idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _late(self, what: str, *, answer: bool) -> None:
        if self._dropping or not answer:
            self._cut(what)
        else:
            self._refuse(RequestTimeout("The request took too long to arrive."), what)

    def _stop(self, refusal: ApiError) -> None:
        self._refusal = refusal
        raise _Refused

    def _refuse(self, error: ApiError, what: str) -> None:
        """Say why, send the end of the stream, and drop what still comes for a short while."""
        cycle = self.cycle
        if not self._idle:
            # What works for this request learns that its client is gone.
            cycle.disconnected = True
            cycle.message_event.set()
            self._tell_gone()
            self.flow.resume_writing()
            if cycle.response_started or self.pipeline:
                self._cut(what)
                return
        self.limits.on_cut(what)
        self._dropping, self._in_body = True, False
        self._head_due = self.loop.time() + _LINGER_S
        self.flow.resume_reading()
        self.transport.write(_response(error))
        with suppress(OSError, RuntimeError):
            self.transport.write_eof()

    def _cut(self, what: str) -> None:
        if not self._dropping:
            self.limits.on_cut(what)
        self._head_due, self._in_body, self._stalled_at = inf, False, None
        self.transport.abort()


def guarded(limits: ConnectionLimits) -> type[GuardedProtocol]:
    """The protocol with these limits, as uvicorn wants it: a class."""
    return type("GuardedProtocol", (GuardedProtocol,), {"limits": limits})


def sweep(connections: Iterable[Any], now: float) -> None:
    """Look at every connection; call it once a second with the loop's time."""
    for connection in list(connections):
        if isinstance(connection, GuardedProtocol):
            connection.check_time(now)


def _response(error: ApiError) -> bytes:
    """An error as the bytes of a whole response, for a request that never reached the app."""
    body = dump(error_body(error))
    headers = {
        "content-type": "application/json",
        "content-length": str(len(body)),
        "connection": "close",
        "x-request-id": f"req_{secrets.token_hex(16)}",
        **error.headers,
    }
    lines = [f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


def _set_options(connected: socket.socket | None, limits: ConnectionLimits) -> None:
    """Little unsent data in the kernel; a peer that vanished is noticed while we send to it."""
    if connected is None or connected.family not in (socket.AF_INET, socket.AF_INET6):
        return
    # A reader that stalls is ours to cut; the kernel's limit is for peers that are gone.
    gone_ms = int((limits.write_s + 5) * 1000)
    with suppress(OSError, AttributeError):
        connected.setsockopt(socket.IPPROTO_TCP, _TCP_NOTSENT_LOWAT, UNSENT_BYTES)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, gone_ms)
