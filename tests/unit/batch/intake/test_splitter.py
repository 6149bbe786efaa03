"""Chunks into physical lines."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from batch.intake.check import LineSplitter, PhysicalLine


def split(*chunks: bytes, max_line_bytes: int = 1000) -> list[PhysicalLine]:
    splitter = LineSplitter(max_line_bytes=max_line_bytes)
    lines = [line for chunk in chunks for line in splitter.feed(chunk)]
    return [*lines, *splitter.finish()]


def test_lines_offsets_and_numbers() -> None:
    assert split(b"ab\ncd\r\n\n  ef ") == [
        PhysicalLine(1, 0, b"ab"),
        PhysicalLine(2, 3, b"cd"),
        PhysicalLine(3, 7, b""),
        PhysicalLine(4, 10, b"ef"),
    ]


def test_a_byte_order_mark_belongs_to_no_line() -> None:
    assert split(b"\xef\xbb\xbfab\n\xef\xbb\xbf") == [
        PhysicalLine(1, 3, b"ab"),
        PhysicalLine(2, 6, b"\xef\xbb\xbf"),
    ]


def test_a_byte_order_mark_in_pieces() -> None:
    assert split(b"\xef", b"\xbb", b"\xbfab") == [PhysicalLine(1, 3, b"ab")]


def test_nothing_and_a_final_line_end() -> None:
    assert split() == []
    assert split(b"") == []
    assert split(b"ab\n") == [PhysicalLine(1, 0, b"ab")]


def test_a_line_over_the_limit_is_dropped_and_the_next_has_its_offset() -> None:
    assert split(b"12345\n123456\n", b"1234", b"5678\nx\n", max_line_bytes=5) == [
        PhysicalLine(1, 0, b"12345"),
        PhysicalLine(2, 6, b"", too_long=True),
        PhysicalLine(3, 13, b"", too_long=True),
        PhysicalLine(4, 22, b"x"),
    ]


def test_memory_is_bounded_by_the_limit() -> None:
    splitter = LineSplitter(max_line_bytes=100)
    for _ in range(1000):
        assert list(splitter.feed(b"x" * 50)) == []
        assert sum(len(piece) for piece in splitter._pending) <= 100
    [line] = splitter.finish()
    assert line.too_long


@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=10))
def test_where_chunks_end_makes_no_difference(data: bytes, cuts: list[int]) -> None:
    borders = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    chunks = [data[a:b] for a, b in pairwise(borders)]
    lines = split(*chunks)
    assert lines == split(data)
    for line in lines:
        assert data[line.offset : line.offset + len(line.data)] == line.data
    assert [line.line_no for line in lines] == list(range(1, len(lines) + 1))
