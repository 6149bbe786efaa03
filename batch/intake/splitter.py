"""Cuts a stream of chunks into physical lines, in memory bounded by one line.

A line ends with LF; a CR before it belongs to the line end. A byte order mark at the very start
of the file belongs to no line. Bytes of a line over the limit are counted and dropped.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_BOM: Final = b"\xef\xbb\xbf"
_BLANK: Final = b" \t\r"


@dataclass(frozen=True, slots=True)
class PhysicalLine:
    """One line of a file.

    Attributes:
        line_no: From 1.
        offset: Where `data` begins in the file, bytes.
        data: The line without line end, BOM and white space around it; empty for a blank line.
        too_long: The line is over the limit and `data` is empty.
    """

    line_no: int
    offset: int
    data: bytes
    too_long: bool = False


class LineSplitter:
    """Feed it chunks in order, then `finish`; both yield the lines that became complete.

    Invariant: `_start` is the file offset of the first byte of the line being gathered, and
    `_pending` holds its bytes so far, unless there are more than the limit.
    """

    def __init__(self, *, max_line_bytes: int) -> None:
        self._max_line_bytes = max_line_bytes
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._start = 0
        self._line_no = 1

    def feed(self, chunk: bytes) -> Iterator[PhysicalLine]:
        """Lines that end inside `chunk`."""
        begin = 0
        while (end := chunk.find(b"\n", begin)) >= 0:
            self._gather(chunk[begin:end])
            yield self._take(line_end_bytes=1)
            begin = end + 1
        self._gather(chunk[begin:])

    def finish(self) -> Iterator[PhysicalLine]:
        """The last line, where the file does not end with a line end."""
        if self._pending_bytes:
            yield self._take(line_end_bytes=0)

    def _gather(self, piece: bytes) -> None:
        if not piece:
            return
        self._pending_bytes += len(piece)
        if self._pending_bytes > self._max_line_bytes:
            self._pending.clear()
        else:
            self._pending.append(piece)

    def _take(self, *, line_end_bytes: int) -> PhysicalLine:
        raw = self._pending[0] if len(self._pending) == 1 else b"".join(self._pending)
        offset = self._start
        if self._line_no == 1 and raw.startswith(_BOM):
            raw = raw[len(_BOM) :]
            offset += len(_BOM)
        data = raw.lstrip(_BLANK)
        offset += len(raw) - len(data)
        line = PhysicalLine(
            self._line_no,
            offset,
            data.rstrip(_BLANK),
            too_long=self._pending_bytes > self._max_line_bytes,
        )
        self._start += self._pending_bytes + line_end_bytes
        self._line_no += 1
        self._pending.clear()
        self._pending_bytes = 0
        return line
