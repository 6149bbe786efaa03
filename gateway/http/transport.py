"""A response's head and its body leave together; and reading has two who may stop it.

uvicorn writes the head by itself, and the event loop sends what is written at once where nothing
else is to be done: two system calls and two packets for each answer, and a client that is woken
twice. Here a head waits for the body that follows in the same turn of the event loop; one that is
followed by nothing leaves at the turn's end.

uvicorn stops reading while an app does not take what has come, and we while what has come is not
parsed yet (`reading`). The socket is read when neither does.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

_STATUS_LINE: Final = b"HTTP/1."


class HeadWithBody:
    """A transport around another; everything but writing and ending is the other's.

    Invariant: `_head` is empty, or `_flush` is about to be called.
    """

    __slots__ = ("_head", "_is_held", "_is_paused", "_loop", "_transport")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._head = b""
        self._is_paused = self._is_held = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Send it, with the head that waits, unless it is a head."""
        if data.startswith(_STATUS_LINE) and not self._head:
            self._head = data
            self._loop.call_soon(self._flush)
            return
        if self._head:
            data, self._head = self._head + data, b""
        self._transport.write(data)

    def write_eof(self) -> None:
        self._flush()
        self._transport.write_eof()

    def close(self) -> None:
        """Close it once everything is sent."""
        self._flush()
        self._transport.close()

    def abort(self) -> None:
        self._head = b""
        self._transport.abort()

    def pause_reading(self) -> None:
        """The app does not take what has come."""
        self._is_paused = True
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """It does; the socket is read unless it is held."""
        self._is_paused = False
        self._read_on()

    def hold(self, *, is_held: bool) -> None:
        """Whether what has come waits to be parsed."""
        if is_held == self._is_held or self._transport.is_closing():
            return
        self._is_held = is_held
        if is_held:
            self._transport.pause_reading()
        else:
            self._read_on()

    def _read_on(self) -> None:
        if not self._is_paused and not self._is_held and not self._transport.is_closing():
            self._transport.resume_reading()

    def _flush(self) -> None:
        if self._head:
            data, self._head = self._head, b""
            if not self._transport.is_closing():
                self._transport.write(data)
