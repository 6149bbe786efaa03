"""Ranges and names of downloads (rows F-22, F-24)."""

from __future__ import annotations

import pytest

from batch.files import ByteRange
from gateway.http.ranges import RangeNotSatisfiable, content_disposition, read_range


@pytest.mark.parametrize(
    ("header", "wanted"),
    [
        (None, None),
        ("", None),
        ("bytes=0-0", ByteRange(0, 1)),
        ("bytes=2-5", ByteRange(2, 4)),
        ("bytes = 2 - 5", ByteRange(2, 4)),
        ("bytes=2-", ByteRange(2, 8)),
        ("bytes=2-99", ByteRange(2, 8)),
        ("bytes=-3", ByteRange(7, 3)),
        ("bytes=-99", ByteRange(0, 10)),
        ("bytes=-", None),
        ("bytes=5-2", None),
        ("bytes=0-1,4-5", None),
        ("lines=0-1", None),
        ("bytes=a-b", None),
        ("bytes=" + "9" * 40 + "-", None),
    ],
)
def test_ranges_of_ten_bytes(header: str | None, wanted: ByteRange | None) -> None:
    assert read_range(header, 10) == wanted


@pytest.mark.parametrize(("header", "size"), [("bytes=10-", 10), ("bytes=-0", 10), ("bytes=0-", 0)])
def test_ranges_outside_of_the_file(header: str, size: int) -> None:
    with pytest.raises(RangeNotSatisfiable) as refused:
        read_range(header, size)
    assert refused.value.headers["content-range"] == f"bytes */{size}"


def test_a_range_of_another_version_is_ignored() -> None:
    assert read_range("bytes=2-5", 10, if_range='"old"', etag='"new"') is None
    assert read_range("bytes=2-5", 10, if_range='"new"', etag='"new"') == ByteRange(2, 4)


@pytest.mark.parametrize(
    ("filename", "header"),
    [
        ("a b.jsonl", 'attachment; filename="a b.jsonl"'),
        (
            'q"\\%.x',
            "attachment; filename=\"q___.x\"; filename*=UTF-8''q%22%5C%25.x",
        ),
        ("名.x", "attachment; filename=\"_.x\"; filename*=UTF-8''%E5%90%8D.x"),
    ],
)
def test_names(filename: str, header: str) -> None:
    assert content_disposition(filename) == header
    header.encode("latin-1")
