"""A multipart form read as it arrives."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from itertools import pairwise

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.batch_errors import InvalidUpload
from api.errors import ApiError, UnsupportedMediaType
from gateway.http.multipart import (
    MAX_FIELD_BYTES,
    MAX_OPTIONS,
    MAX_PARTS,
    PIECE_BYTES,
    MultipartForm,
    clean_filename,
)

TYPE = "multipart/form-data; boundary=b0undary"
Parts = list[tuple[str, str | None, bytes]]


def part(name: str, data: bytes, filename: str | None = None) -> bytes:
    file = "" if filename is None else f'; filename="{filename}"'
    head = f'--b0undary\r\nContent-Disposition: form-data; name="{name}"{file}\r\n\r\n'
    return head.encode() + data + b"\r\n"


END = b"--b0undary--\r\n"
DATA = b"line one\r\nline two\r\n--b0undar\r\n\r\n--b0undary-ish"
FORM = part("file", DATA, "in.jsonl") + part("purpose", b"batch") + END
PARTS: Parts = [("file", "in.jsonl", DATA), ("purpose", None, b"batch")]


async def body(*chunks: bytes) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


async def read(*chunks: bytes, content_type: str | None = TYPE) -> Parts:
    form = MultipartForm(content_type, body(*chunks))
    return [
        (part.name, part.filename, b"".join([chunk async for chunk in part.chunks()]))
        async for part in form.parts()
    ]


async def test_parts_in_their_order() -> None:
    assert await read(FORM) == PARTS


async def test_one_byte_at_a_time() -> None:
    assert await read(*[FORM[at : at + 1] for at in range(len(FORM))]) == PARTS


@given(st.lists(st.integers(0, len(FORM)), max_size=12))
def test_where_chunks_end_makes_no_difference(cuts: list[int]) -> None:
    borders = [0, *sorted(cuts), len(FORM)]
    chunks = [FORM[start:end] for start, end in pairwise(borders)]
    assert asyncio.run(read(*chunks)) == PARTS


@given(st.binary(max_size=400), st.lists(st.integers(0, 600), max_size=6))
def test_any_content_comes_through_whole(data: bytes, cuts: list[int]) -> None:
    form = part("file", data, "x") + END
    borders = [0, *sorted(min(cut, len(form)) for cut in cuts), len(form)]
    chunks = [form[start:end] for start, end in pairwise(borders)]
    if b"\r\n--b0undary" not in b"\r\n" + data:
        assert asyncio.run(read(*chunks)) == [("file", "x", data)]


@given(st.integers(0, len(FORM) - len(END) + 11))
def test_a_form_that_ends_early_is_refused(length: int) -> None:
    with pytest.raises(InvalidUpload):
        asyncio.run(read(FORM[:length]))


@given(st.binary(max_size=200))
def test_no_bytes_can_break_it(data: bytes) -> None:
    with pytest.raises(ApiError):
        asyncio.run(read(b"--b0undary" + data))


async def test_what_is_not_read_of_a_part_is_skipped() -> None:
    form = MultipartForm(TYPE, body(FORM))
    assert [part.name async for part in form.parts()] == ["file", "purpose"]


async def test_nothing_is_read_before_it_is_asked_for() -> None:
    num_read = 0

    async def counted() -> AsyncIterator[bytes]:
        nonlocal num_read
        for chunk in (part("purpose", b"batch"), part("file", b"1", "x"), END):
            num_read += 1
            yield chunk

    parts = MultipartForm(TYPE, counted()).parts()
    assert num_read == 0
    first = await anext(parts)
    assert await first.text() == "batch"
    assert num_read <= 2


async def test_what_a_client_library_sends() -> None:
    request = httpx.Request(
        "POST", "http://x", data={"purpose": "batch"}, files={"file": ("größe 名.jsonl", b"{}\n")}
    )
    content_type = request.headers["content-type"]
    parts = await read(request.read(), content_type=content_type)
    assert parts == [("purpose", None, b"batch"), ("file", "größe 名.jsonl", b"{}\n")]


@pytest.mark.parametrize("content_type", [None, "", "application/json", "multipart/mixed"])
async def test_other_content_types(content_type: str | None) -> None:
    with pytest.raises(UnsupportedMediaType):
        await read(content_type=content_type)


@pytest.mark.parametrize(
    "content_type", ["multipart/form-data", f"multipart/form-data; boundary={'x' * 300}"]
)
async def test_bad_boundaries(content_type: str) -> None:
    with pytest.raises(InvalidUpload):
        await read(content_type=content_type)


@pytest.mark.parametrize(
    "form",
    [
        b"--b0undary\r\n\r\ndata\r\n" + END,
        b"--b0undary\r\nContent-Disposition: form-data\r\n\r\ndata\r\n" + END,
        b"--b0undary\r\nContent-Disposition: attachment; name=a\r\n\r\ndata\r\n" + END,
        b"--b0undary\r\nX: " + b"y" * 9000 + b"\r\n\r\ndata\r\n" + END,
        b"".join(part(str(number), b"") for number in range(MAX_PARTS + 1)) + END,
    ],
)
async def test_forms_that_are_refused(form: bytes) -> None:
    with pytest.raises(InvalidUpload):
        await read(form)


@pytest.mark.parametrize("value", [b"x" * (MAX_FIELD_BYTES + 1), b"\xff", b"a\0"])
async def test_fields_that_are_refused(value: bytes) -> None:
    parts = MultipartForm(TYPE, body(part("purpose", value) + END)).parts()
    with pytest.raises(InvalidUpload) as refused:
        await (await anext(parts)).text()
    assert refused.value.param == "purpose"


@pytest.mark.parametrize(
    ("raw", "name"),
    [
        (b"a.jsonl", "a.jsonl"),
        (b"../../etc/passwd", "passwd"),
        (b"C:\\Users\\me\\a.jsonl", "a.jsonl"),
        ("名 前.jsonl".encode(), "名 前.jsonl"),
        (b"a\r\nSet-Cookie: x\0", "aSet-Cookie: x"),
        (b"", "upload"),
        (b"///", "upload"),
        (b"x" * 999, "x" * 255),
        (b"\xff", "�"),
    ],
)
def test_file_names(raw: bytes, name: str) -> None:
    assert clean_filename(raw) == name


async def test_a_header_has_so_many_options() -> None:
    """What parses them takes steps whose number grows with the square of the semicolons."""
    many = ";" * (MAX_OPTIONS + 1)
    with pytest.raises(InvalidUpload, match="options"):
        await read(FORM, content_type=TYPE + many)
    head = f'--b0undary\r\nContent-Disposition: form-data; name="file"{many}\r\n\r\n'
    with pytest.raises(InvalidUpload, match="options"):
        await read(head.encode() + b"data\r\n" + END)


NUM_BYTES = 64 * PIECE_BYTES


@pytest.mark.parametrize(
    ("content", "is_work"),
    [
        (b"x" * NUM_BYTES, False),
        (b"\r\n" * (NUM_BYTES // 2), False),
        (b"\r\n--b0undaryx" * (NUM_BYTES // 13), True),
        (b"\r\n--b0undary" + b" " * NUM_BYTES, True),
    ],
    ids=["content", "lines", "nearly boundaries", "padding"],
)
async def test_what_is_work_to_parse_lets_the_loop_go_on(content: bytes, is_work: bool) -> None:
    num_turns = 0

    async def ticking() -> None:
        nonlocal num_turns
        while True:
            num_turns += 1
            await asyncio.sleep(0)

    ticks = asyncio.ensure_future(ticking())
    head = b'--b0undary\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
    with suppress(InvalidUpload):
        await read(head, content, b"\r\n" + END)
    ticks.cancel()
    assert (num_turns > 32) == is_work
