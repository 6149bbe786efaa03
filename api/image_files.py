"""What a file of an image looks like from outside: its kind, its size, whether it is all there.

Nothing is decoded: a decoder is for the engine, which has one. Read are the marks and lengths that
the formats themselves give: PNG (RFC 2083, with its checksums), JPEG (ITU T.81, annex B), WebP
(RFC 9649) and GIF (89a).
"""

from __future__ import annotations

import binascii
from collections.abc import Iterator
from typing import Final, Literal

_PNG: Final = b"\x89PNG\r\n\x1a\n"
_GIFS: Final = (b"GIF87a", b"GIF89a")
_GIF_HEAD_BYTES: Final = 13
_GIF_EXTENSION: Final = b"!"
_GIF_PICTURE: Final = b","
_JPEG_SCAN: Final = 0xDA
_JPEG_END: Final = b"\xff\xd9"
_JPEG_FRAMES: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""Markers of the segment that has the size."""
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
    for marker, at in _jpeg_segments(data):
        if marker == _JPEG_SCAN:
            return data.find(_JPEG_END, at) > 0
    return False


def _jpeg_segments(data: bytes) -> Iterator[tuple[int, int]]:
    """Marker and place of each segment, up to the first scan."""
    at = 2
    while at + 4 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if marker == 0xFF:
            at += 1  # a byte of padding
        elif marker in _JPEG_ALONE:
            at += 2
        else:
            yield marker, at
            if marker == _JPEG_SCAN:
                return
            at += 2 + max(2, int.from_bytes(data[at + 2 : at + 4], "big"))


def _webp(data: bytes) -> bool:
    return len(data) >= 8 + int.from_bytes(data[4:8], "little") > 20


def _gif(data: bytes) -> bool:
    return len(data) > _GIF_HEAD_BYTES


_WHOLE: Final = {"png": _png, "jpeg": _jpeg, "webp": _webp, "gif": _gif}


def size_of(kind: str, data: bytes) -> tuple[int, int] | None:
    """Width and height in pixels as the file gives them; none where it does not."""
    return _SIZE[kind](data)


def _png_size(data: bytes) -> tuple[int, int] | None:
    return _two(data[16:24], 4, "big")


def _jpeg_size(data: bytes) -> tuple[int, int] | None:
    sizes = [
        size
        for marker, at in _jpeg_segments(data)
        if marker in _JPEG_FRAMES and (size := _two(data[at + 5 : at + 9], 2, "big"))
    ]
    # Decoders differ in which of several they take.
    largest = max(sizes, key=lambda size: size[0] * size[1], default=None)
    return largest and (largest[1], largest[0])


def _webp_size(data: bytes) -> tuple[int, int] | None:
    chunk = data[12:16]
    if chunk == b"VP8X":
        less_one = _two(data[24:30], 3, "little")
        return (less_one[0] + 1, less_one[1] + 1) if less_one else None
    if chunk == b"VP8L" and data[20:21] == b"\x2f":
        bits = int.from_bytes(data[21:25], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if chunk == b"VP8 " and data[23:26] == b"\x9d\x01\x2a":
        size = _two(data[26:30], 2, "little")
        return (size[0] & 0x3FFF, size[1] & 0x3FFF) if size else None
    return None


def _gif_size(data: bytes) -> tuple[int, int] | None:
    """The screen, and the first picture where that is larger."""
    screen = _two(data[6:10], 2, "little")
    if screen is None or len(data) < _GIF_HEAD_BYTES:
        return screen
    at = _GIF_HEAD_BYTES
    if data[10] & 0x80:
        at += 3 << (data[10] & 7) + 1
    while data[at : at + 1] == _GIF_EXTENSION:
        at += 2
        while at < len(data) and data[at]:
            at += 1 + data[at]
        at += 1
    if data[at : at + 1] == _GIF_PICTURE:
        place, size = (
            _two(data[at + 1 : at + 5], 2, "little"),
            _two(data[at + 5 : at + 9], 2, "little"),
        )
        if place and size:
            return max(screen[0], place[0] + size[0]), max(screen[1], place[1] + size[1])
    return screen


def _two(data: bytes, num_bytes: int, order: Literal["big", "little"]) -> tuple[int, int] | None:
    """Two numbers that follow each other."""
    if len(data) < 2 * num_bytes:
        return None
    return int.from_bytes(data[:num_bytes], order), int.from_bytes(data[num_bytes:], order)


_SIZE: Final = {"png": _png_size, "jpeg": _jpeg_size, "webp": _webp_size, "gif": _gif_size}
