"""Bodies that come compressed: gzip and deflate are decoded as they arrive, in small pieces.

A kilobyte may become a megabyte, so whoever reads counts the pieces and stops where a limit is
reached: no more than one piece is ever decoded beyond it.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any, Final

from starlette.types import Scope

from api.errors import InvalidRequest, UnsupportedMediaType

PIECE_BYTES: Final = 64 * 1024
_PLAIN: Final = frozenset({"", "identity"})
_WINDOW_BITS: Final = {
    "gzip": zlib.MAX_WBITS | 16,
    "x-gzip": zlib.MAX_WBITS | 16,
    "deflate": zlib.MAX_WBITS,
}


def coding_of(scope: Scope) -> str:
    """The coding of a request's body; empty where it is as it is.

    Raises:
        UnsupportedMediaType: It is none that is read here.
    """
    said = b",".join(value for name, value in scope["headers"] if name == b"content-encoding")
    if not said:
        return ""
    codings = [one.strip() for one in said.decode("latin-1").lower().split(",")]
    codings = [one for one in codings if one not in _PLAIN]
    if not codings:
        return ""
    if len(codings) > 1 or codings[0] not in _WINDOW_BITS:
        raise UnsupportedMediaType(
            "The body may be compressed with gzip or deflate, once, as 'content-encoding' says."
        )
    return codings[0]


class Decoder:
    """One compressed body.

    Args:
        coding: Of `coding_of`, not empty.
    """

    def __init__(self, coding: str) -> None:
        self._coding = coding
        self._inflate: Any = None
        self._whole = True

    def feed(self, data: bytes) -> Iterator[bytes]:
        """What some more of it says, in pieces of at most `PIECE_BYTES`.

        Raises:
            InvalidRequest: It is not of its coding.
        """
        try:
            yield from self._feed(data)
        except zlib.error:
            raise self._damaged("not valid") from None

    def end(self) -> None:
        """All of it was fed.

        Raises:
            InvalidRequest: More had to come.
        """
        if not self._whole:
            raise self._damaged("cut short")

    def _feed(self, data: bytes) -> Iterator[bytes]:
        while data:
            if self._inflate is None:
                self._inflate = zlib.decompressobj(self._bits(data))
                self._whole = False
            piece = self._inflate.decompress(data, PIECE_BYTES)
            data = self._inflate.unconsumed_tail
            while piece:
                yield piece
                full = len(piece) == PIECE_BYTES
                piece = self._inflate.decompress(data, PIECE_BYTES) if full or data else b""
                data = self._inflate.unconsumed_tail
            if self._inflate.eof:  # gzip allows several in a row
                data, self._inflate, self._whole = self._inflate.unused_data, None, True

    def _bits(self, data: bytes) -> int:
        """Some senders leave the frame of deflate out: its first byte says which it is."""
        if self._coding == "deflate" and data[0] & 0x0F != zlib.DEFLATED:
            return -zlib.MAX_WBITS
        return _WINDOW_BITS[self._coding]

    def _damaged(self, how: str) -> InvalidRequest:
        return InvalidRequest(
            f"The body says that it is {self._coding}, and is {how}.", code="invalid_encoding"
        )
