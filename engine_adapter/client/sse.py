"""Cutting a byte stream of server-sent events at the events' borders."""

from __future__ import annotations

MAX_EVENT_BYTES = 16 * 1024 * 1024
DONE = b"[DONE]"

_PREFIX = b"data: "


class EventTooLong(ValueError):
    """One event is longer than the parser allows."""


class EventParser:
    """Feed it bytes as they come; it returns the data of every event completed by them.

    Invariant: `_tail` never contains a whole event.
    """

    __slots__ = ("_max_event_bytes", "_tail")

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max_event_bytes = max_event_bytes
        self._tail = b""

    def feed(self, chunk: bytes) -> list[bytes]:
        """The data of each event that `chunk` completes, in order; comments are dropped.

        Raises:
            EventTooLong: An event does not end.
        """
        if self._tail:
            chunk = self._tail + chunk
        if b"\r" in chunk:
            # A lone \r at the end may be the first half of \r\n: it is kept for the next chunk.
            held, chunk = (b"\r", chunk[:-1]) if chunk.endswith(b"\r") else (b"", chunk)
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        else:
            held = b""
        blocks = chunk.split(b"\n\n")
        self._tail = blocks.pop() + held
        if len(self._tail) > self._max_event_bytes:
            raise EventTooLong("an event of the engine's stream does not end")
        events = []
        for block in blocks:
            if block.startswith(_PREFIX) and b"\n" not in block:
                events.append(block[6:])
            else:
                data = _data_of(block)
                if data is not None:
                    events.append(data)
        return events


def _data_of(block: bytes) -> bytes | None:
    """The data of an event in its general form: several lines, comments, other fields."""
    lines = []
    for line in block.split(b"\n"):
        name, _, value = line.partition(b":")
        if name == b"data":
            lines.append(value.removeprefix(b" "))
    return b"\n".join(lines) if lines else None
