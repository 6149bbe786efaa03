"""What a file of an image looks like from outside: its kind, and whether it is all there.

Nothing is decoded: a decoder is for the engine, which has one. Read are the marks and lengths that
the formats themselves give: PNG (RFC 2083, with its checksums), JPEG (ITU T.81, annex B), WebP
(RFC 9649) and GIF (89a).
"""

from __future__ import annotations

import binascii
from typing import Final

_PNG: Final = b"\x89PNG\r\n\x1a\n"
_GIFS: Final = (b"GIF87a", b"GIF89a")
_GIF_HEAD_BYTES: Final = 13
_JPEG_SCAN: Final = 0xDA
_JPEG_END: Final = b"\xff\xd9"
_JPEG_ALONE: Final = frozenset({0x01, *range(0xD0, 0xD8)})
"""Markers without a length."""


def kind_of(data: bytes) -> str | None:
    """The format that a file begins as, by the name of its media type."""
    if data.startswith(_PNG):
        return "png"
    if data.startswith(b"\xff\xd8\xff"):
        return "jpeg"
    if data.startswith(_GIFS):
        return "gif"
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return "webp"
    return None


def is_whole(kind: str, data: bytes) -> bool:
    """Whether a file of that kind goes to its end, as far as its own marks tell."""
    return _WHOLE[kind](data)


def _png(data: bytes) -> bool:
    view, at, seen = memoryview(data), len(_PNG), set[bytes]()
    while at + 12 <= len(data):
        body_end = at + 8 + int.from_bytes(data[at : at + 4], "big")
        if body_end + 4 > len(data):
            return False
        if binascii.crc32(view[at + 4 : body_end]) != int.from_bytes(
            data[body_end : body_end + 4], "big"
        ):
            return False
        name = data[at + 4 : at + 8]
        if not seen and name != b"IHDR":
            return False
        seen.add(name)
        if name == b"IEND":
            return b"IDAT" in seen
        at = body_end + 4
    return False


def _jpeg(data: bytes) -> bool:
    at = 2
    while at + 4 <= len(data):
        if data[at] != 0xFF:
            return False
        marker = data[at + 1]
        if marker == _JPEG_SCAN:
            return data.find(_JPEG_END, at) > 0
        if marker == 0xFF:
            at += 1  # a byte of padding
        elif marker in _JPEG_ALONE:
            at += 2
        else:
            at += 2 + max(2, int.from_bytes(data[at + 2 : at + 4], "big"))
    return False


def _webp(data: bytes) -> bool:
    return len(data) >= 8 + int.from_bytes(data[4:8], "little") > 20


def _gif(data: bytes) -> bool:
    return len(data) > _GIF_HEAD_BYTES


_WHOLE: Final = {"png": _png, "jpeg": _jpeg, "webp": _webp, "gif": _gif}
