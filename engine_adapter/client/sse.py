"""Cutting a byte stream of server-sent events at the events' borders."""

from __future__ import annotations

MAX_EVENT_BYTES = 16 * 1024 * 1024
MAX_IDLE_BYTES = 256 * 1024
"""Of comments in a row: one each quarter of a minute for weeks."""

DONE = b"[DONE]"

_PREFIX = b"data: "


class EventTooLong(ValueError):
    """One event is longer than the parser allows."""


class EventParser:
    """Feed it bytes as they come; it returns the data of every event completed by them.

    Invariant: `_tail` never contains a whole event; its pieces are put together once it does.
    """

    __slots__ = ("_held", "_max_event_bytes", "_num_idle", "_num_tail", "_tail")

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max_event_bytes = max_event_bytes
        self._tail: list[bytes] = []
        self._num_tail = self._num_idle = 0
        self._held = b""

    def feed(self, chunk: bytes) -> list[bytes]:
        """The data of each event that `chunk` completes, in order; comments are dropped.

        Raises:
            EventTooLong: An event does not end, or nothing but comments comes.
        """
        if self._held or b"\r" in chunk:
            # A lone \r at the end may be the first half of \r\n: it is kept for the next chunk.
            chunk = self._held + chunk
            self._held, chunk = (b"\r", chunk[:-1]) if chunk.endswith(b"\r") else (b"", chunk)
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if self._tail:
            if b"\n\n" not in self._tail[-1][-1:] + chunk:
                self._keep(chunk)
                return []
            chunk = b"".join((*self._tail, chunk))
            self._tail.clear()
            self._num_tail = 0
        blocks = chunk.split(b"\n\n")
        self._keep(blocks.pop())
        events = []
        for block in blocks:
            if block.startswith(_PREFIX) and b"\n" not in block:
                events.append(block[6:])
            else:
                data = _data_of(block)
                if data is not None:
                    events.append(data)
                else:
                    self._num_idle += len(block) + 2
        if events:
            self._num_idle = 0
        elif self._num_idle > MAX_IDLE_BYTES:
            raise EventTooLong("the engine's stream is nothing but comments")
        return events

    def _keep(self, rest: bytes) -> None:
        """What no event's end has come of."""
        if rest:
            self._tail.append(rest)
            self._num_tail += len(rest)
        if self._num_tail > self._max_event_bytes:
            raise EventTooLong("an event of the engine's stream does not end")


def _data_of(block: bytes) -> bytes | None:
    """The data of an event in its general form: several lines, comments, other fields."""
    lines = []
    for line in block.split(b"\n"):
        name, _, value = line.partition(b":")
        if name == b"data":
            lines.append(value.removeprefix(b" "))
    return b"\n".join(lines) if lines else None
