"""Bodies that come compressed: gzip, deflate and zstd are decoded as they arrive, in small pieces.

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
MAX_MEMBERS: Final = 256
"""Of one body: gzip allows several in a row, and each is work however little it says."""
_PLAIN: Final = frozenset({"", "identity"})
_WINDOW_BITS: Final = {
    "gzip": zlib.MAX_WBITS | 16,
    "x-gzip": zlib.MAX_WBITS | 16,
    "deflate": zlib.MAX_WBITS,
}
_ZSTD: Final = "zstd"
_READ: Final = frozenset({*_WINDOW_BITS, _ZSTD})
_ZSTD_WINDOW_LOG: Final = 23
"""What a reader of zstd must be able to hold, 8 MiB; the sender of one body may ask for no more."""


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
    if len(codings) > 1 or codings[0] not in _READ:
        raise UnsupportedMediaType(
            "The body may be compressed with gzip, deflate or zstd, once, as 'content-encoding' "
            "says."
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
        self._num_members = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        """What some more of it says, in pieces of at most `PIECE_BYTES`.

        Raises:
            InvalidRequest: It is not of its coding.
        """
        if self._coding == _ZSTD:
            yield from self._feed_zstd(data)
            return
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
                self._count_member()
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

    def _feed_zstd(self, data: bytes) -> Iterator[bytes]:
        from backports import zstd  # the standard library has it from 3.14 on

        limit = {int(zstd.DecompressionParameter.window_log_max): _ZSTD_WINDOW_LOG}
        try:
            while data:
                if self._inflate is None:
                    self._count_member()
                    self._inflate = zstd.ZstdDecompressor(options=limit)
                    self._whole = False
                piece = self._inflate.decompress(data, PIECE_BYTES)
                while piece:
                    yield piece
                    more = not (self._inflate.eof or self._inflate.needs_input)
                    piece = self._inflate.decompress(b"", PIECE_BYTES) if more else b""
                data = b""
                if self._inflate.eof:  # several frames in a row are one body
                    data, self._inflate, self._whole = self._inflate.unused_data, None, True
        except zstd.ZstdError:
            raise self._damaged("not valid") from None

    def _count_member(self) -> None:
        self._num_members += 1
        if self._num_members > MAX_MEMBERS:
            raise self._damaged(f"of more than {MAX_MEMBERS} members")

    def _bits(self, data: bytes) -> int:
        """Some senders leave the frame of deflate out: its first byte says which it is."""
        if self._coding == "deflate" and data[0] & 0x0F != zlib.DEFLATED:
            return -zlib.MAX_WBITS
        return _WINDOW_BITS[self._coding]

    def _damaged(self, how: str) -> InvalidRequest:
        return InvalidRequest(
            f"The body says that it is {self._coding}, and is {how}.", code="invalid_encoding"
        )
