"""A multipart form read as it arrives: parts in order, their bytes in chunks.

Nothing is kept but the chunk the socket just gave, so memory does not grow with the form. The
caller pulls: a part's bytes are read from the socket when they are asked for, and not before.

Content is passed over by one search for the boundary. What else a chunk may be, the sender chooses:
ten thousand words that begin like a boundary are steps in Python, 0.16 s in a quarter of a
megabyte. So a chunk that is not all content is parsed a little at a time.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, MultipartState, parse_options_header

from api.batch_errors import InvalidUpload
from api.errors import UnsupportedMediaType

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks

MAX_PARTS: Final = 32
MAX_FIELD_BYTES: Final = 16 * 1024
MAX_FILENAME_CHARS: Final = 255
NAMELESS: Final = "upload"
MAX_OPTIONS: Final = 64
"""Of a header: the parser's work grows with the square of the semicolons."""


@dataclass
class FormPart:
    """One part of a form.

    Attributes:
        name: The field's name.
        filename: The name of the sender's file, without folders; None for a plain field.
    """

    name: str
    filename: str | None
    _form: MultipartForm = field(repr=False)

    async def chunks(self) -> AsyncIterator[bytes]:
        """The part's bytes; may be read once, and before the next part is asked for."""
        while (chunk := await self._form.next_chunk()) is not None:
            yield chunk

    async def text(self) -> str:
        """The whole value of a plain field.

        Raises:
            InvalidUpload: It is longer than `MAX_FIELD_BYTES`, not UTF-8 or holds NUL.
        """
        value = bytearray()
        async for chunk in self.chunks():
            value += chunk
            if len(value) > MAX_FIELD_BYTES:
                raise InvalidUpload(
                    f"A form field may have at most {MAX_FIELD_BYTES:,} bytes.", param=self.name
                )
        try:
            text = value.decode()
        except UnicodeDecodeError:
            raise InvalidUpload("A form field must be UTF-8.", param=self.name) from None
        if "\0" in text:
            raise InvalidUpload("A form field must not hold NUL.", param=self.name)
        return text


PIECE_BYTES: Final = 2048
"""What is parsed before others may go on."""

_PART_END: Final = None
_Event = FormPart | bytes | None


class MultipartForm:
    """Parts of one request's body.

    Invariant: `_events` holds what the last chunk from the socket said up to `_at`, in order, minus
    what was taken: a `FormPart` where a part begins, `bytes` of its content, `None` where it ends.

    Raises:
        UnsupportedMediaType: The content type is not multipart/form-data.
        InvalidUpload: It names no boundary, or an illegal one.
    """

    def __init__(self, content_type: str | None, body: AsyncIterator[bytes]) -> None:
        kind, options = _options_of(content_type)
        if kind != b"multipart/form-data":
            raise UnsupportedMediaType("The body must be multipart/form-data.")
        boundary = options.get(b"boundary", b"")
        if not boundary:
            raise InvalidUpload("The content type has no multipart boundary.")
        self._body = body
        self._events: deque[_Event] = deque()
        self._ended = False
        self._chunk = b""
        self._at = 0
        self._delimiter = b"\r\n--" + boundary
        self._num_parts = 0
        self._inside_part = False
        self._header_name = bytearray()
        self._header_value = bytearray()
        self._headers: dict[bytes, str] = {}
        callbacks: MultipartCallbacks = {
            "on_part_begin": self._headers.clear,
            "on_part_data": self._on_data,
            "on_part_end": self._on_part_end,
            "on_header_field": self._on_header_name,
            "on_header_value": self._on_header_value,
            "on_header_end": self._on_header_end,
            "on_headers_finished": self._on_headers_finished,
            "on_end": self._on_end,
        }
        try:
            self._parser = MultipartParser(boundary, callbacks)
        except FormParserError:
            raise InvalidUpload("The multipart boundary is too long.") from None

    async def parts(self) -> AsyncIterator[FormPart]:
        """Every part in order; what was not read of one is skipped. Closed, the form has no more.

        Raises:
            InvalidUpload: The body is not the form that its content type promises, or it ends
                before the form does.
        """
        try:
            while True:
                while self._inside_part:
                    await self.next_chunk()
                event = await self._next_event()
                if event is None:
                    return
                assert isinstance(event, FormPart), "content outside of a part"
                self._inside_part = True
                yield event
        finally:
            # The form would keep these, and they the form.
            self._parser.callbacks = {}
            self._events.clear()

    async def next_chunk(self) -> bytes | None:
        """The next bytes of the current part, or None at its end."""
        if not self._inside_part:
            return None
        event = await self._next_event()
        assert not isinstance(event, FormPart), "a part inside of a part"
        if event is None:
            self._inside_part = False
        return event

    async def _next_event(self) -> _Event:
        """The next event; None as well where the form has ended."""
        while not self._events:
            if self._ended:
                return None
            if self._at == len(self._chunk):
                chunk = await anext(self._body, None)
                if chunk is None:
                    raise InvalidUpload("The multipart form ends before its closing boundary.")
                self._chunk, self._at = chunk, 0
                if self._is_content(chunk):
                    self._at = len(chunk)
                    self._parse(chunk)
            else:
                piece = self._chunk[self._at : self._at + PIECE_BYTES]
                self._at += len(piece)
                self._parse(piece)
                await asyncio.sleep(0)
        return self._events.popleft()

    def _is_content(self, chunk: bytes) -> bool:
        """Whether a chunk is only content of the current part; its end may begin a boundary."""
        parser = self._parser
        inside = parser.state == MultipartState.PART_DATA and not parser.index
        return inside and self._delimiter not in chunk

    def _parse(self, chunk: bytes) -> None:
        try:
            self._parser.write(chunk)
        except FormParserError:
            raise InvalidUpload("The body is not a well-formed multipart form.") from None

    def _on_data(self, data: bytes, start: int, end: int) -> None:
        if start < end:
            self._events.append(data[start:end])

    def _on_part_end(self) -> None:
        self._events.append(_PART_END)

    def _on_header_name(self, data: bytes, start: int, end: int) -> None:
        self._header_name += data[start:end]

    def _on_header_value(self, data: bytes, start: int, end: int) -> None:
        self._header_value += data[start:end]

    def _on_header_end(self) -> None:
        self._headers[bytes(self._header_name).lower()] = self._header_value.decode("latin-1")
        self._header_name.clear()
        self._header_value.clear()

    def _on_headers_finished(self) -> None:
        self._num_parts += 1
        if self._num_parts > MAX_PARTS:
            raise InvalidUpload(f"A form may have at most {MAX_PARTS} parts.")
        kind, options = _options_of(self._headers.get(b"content-disposition"))
        if kind != b"form-data" or b"name" not in options:
            raise InvalidUpload("A part of the form has no name.")
        filename = options.get(b"filename")
        self._events.append(
            FormPart(
                name=options[b"name"].decode(errors="replace"),
                filename=None if filename is None else clean_filename(filename),
                _form=self,
            )
        )

    def _on_end(self) -> None:
        self._ended = True


def _options_of(header: str | None) -> tuple[bytes, dict[bytes, bytes]]:
    """A header's value and its options.

    Raises:
        InvalidUpload: It has too many.
    """
    if header is not None and header.count(";") > MAX_OPTIONS:
        raise InvalidUpload(f"A header of a form may have at most {MAX_OPTIONS} options.")
    return parse_options_header(header)


def clean_filename(raw: bytes) -> str:
    """A sender's file name, fit to be shown and sent back: no folders, no control characters."""
    name = raw.decode(errors="replace").replace("\\", "/").rpartition("/")[2]
    name = "".join(char for char in name if char.isprintable()).strip()
    return name[:MAX_FILENAME_CHARS] or NAMELESS
