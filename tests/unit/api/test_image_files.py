from __future__ import annotations

import pytest

from api.image_files import is_whole, kind_of
from tests.fixtures.pictures import png

JPEG = b"\xff\xd8\xff\xe0\x00\x04ab\xff\xff\xd0\xff\xda\x00\x02scan\xff\xd9"
WEBP = b"RIFF\x20\x00\x00\x00WEBPVP8L" + b"x" * 24
GIF = b"GIF89a" + b"\x01\x00" * 6 + b";"


@pytest.mark.parametrize(
    ("kind", "data"), [("png", png()), ("jpeg", JPEG), ("webp", WEBP), ("gif", GIF)]
)
def test_a_whole_file_is_known(kind: str, data: bytes) -> None:
    assert kind_of(data) == kind
    assert is_whole(kind, data)
    assert is_whole(kind, data + b"\0\0"), "what lies behind the end is nobody's"


@pytest.mark.parametrize(("kind", "data"), [("png", png()), ("jpeg", JPEG), ("webp", WEBP)])
def test_none_of_its_beginnings_is_whole(kind: str, data: bytes) -> None:
    for end in range(12, len(data)):
        assert not is_whole(kind, data[:end]), end


def test_a_changed_byte_of_a_png_is_seen() -> None:
    data = bytearray(png(side=2))
    for at in range(8, len(data)):
        data[at] ^= 0x10
        assert not is_whole("png", bytes(data)), at
        data[at] ^= 0x10


def test_others_are_no_images() -> None:
    assert [kind_of(data) for data in (b"", b"no real picture", b"%PDF-1.7", b"<svg/>")] == [
        None
    ] * 4
    assert not is_whole("jpeg", b"\xff\xd8\xff\xe0\x00\x04abXX" + b"\xff\xd9")
    assert not is_whole("gif", GIF[:13])
