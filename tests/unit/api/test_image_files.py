from __future__ import annotations

import struct
from random import Random

import pytest

from api.image_files import is_whole, kind_of, size_of
from tests.fixtures.pictures import png, sized

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


@pytest.mark.parametrize("kind", ["png", "jpeg", "webp", "webp lossy", "webp lossless", "gif"])
@pytest.mark.parametrize("size", [(1, 1), (640, 480), (1, 16_000), (16_000, 1), (16_383, 16_383)])
def test_the_size_is_what_the_file_says(kind: str, size: tuple[int, int]) -> None:
    data = sized(kind, *size)
    kind = kind.partition(" ")[0]
    assert kind_of(data) == kind
    assert is_whole(kind, data)
    assert size_of(kind, data) == size


def test_of_several_sizes_the_largest_counts() -> None:
    small, large = sized("jpeg", 8, 8), sized("jpeg", 9000, 9000)
    assert size_of("jpeg", large[:-12] + small[2:]) == (9000, 9000)
    gif = sized("gif", 1, 1)
    picture = b"!\xf9\x04\0\0\0\0\0" + b"," + struct.pack("<4H", 7, 9, 5000, 6000) + b"\0"
    assert size_of("gif", gif[:13] + picture + gif[13:]) == (5007, 6009)


@pytest.mark.parametrize("kind", ["png", "jpeg", "webp", "webp lossy", "webp lossless", "gif"])
def test_any_bytes_have_a_size_or_none(kind: str) -> None:
    data, random = sized(kind, 77, 88), Random(7)
    kind = kind.partition(" ")[0]
    for end in range(len(data)):
        size_of(kind, data[:end])
    for _ in range(2000):
        changed = bytearray(data)
        changed[random.randrange(len(data))] = random.randrange(256)
        size_of(kind, bytes(changed))
