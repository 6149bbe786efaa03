"""Compressed bodies say the same in any pieces, and a bomb is met piece by piece."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable
from itertools import islice

import pytest
from backports import zstd
from hypothesis import given
from hypothesis import strategies as st

from api.errors import InvalidRequest, UnsupportedMediaType
from gateway.http.content_coding import MAX_MEMBERS, PIECE_BYTES, Decoder, coding_of


def raw_deflate(data: bytes) -> bytes:
    made = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return made.compress(data) + made.flush()


PACKERS: list[tuple[str, Callable[[bytes], bytes]]] = [
    ("gzip", gzip.compress),
    ("x-gzip", lambda data: gzip.compress(data[:7]) + gzip.compress(data[7:])),
    ("deflate", zlib.compress),
    ("deflate", raw_deflate),
    ("zstd", zstd.compress),
    ("zstd", lambda data: zstd.compress(data[:7]) + zstd.compress(data[7:])),
]


@given(
    data=st.binary(max_size=200) | st.just(b'{"a": "b"}' * 30_000),
    step=st.integers(1, 5000),
    packer=st.sampled_from(PACKERS),
)
def test_the_same_in_any_pieces(
    data: bytes, step: int, packer: tuple[str, Callable[[bytes], bytes]]
) -> None:
    coding, pack = packer
    packed, decoder = pack(data), Decoder(coding)
    pieces: list[bytes] = []
    for at in range(0, len(packed), step):
        pieces += decoder.feed(packed[at : at + step])
    decoder.end()
    assert b"".join(pieces) == data
    assert all(0 < len(piece) <= PIECE_BYTES for piece in pieces)


@pytest.mark.parametrize(("coding", "pack"), PACKERS)
def test_a_bomb_is_decoded_as_far_as_it_is_read(
    coding: str, pack: Callable[[bytes], bytes]
) -> None:
    packed = pack(bytes(32 << 20))
    assert len(packed) < 64 << 10
    pieces = [*islice(Decoder(coding).feed(packed), 3)]
    assert [len(piece) for piece in pieces[1:]] == [PIECE_BYTES] * 2


@pytest.mark.parametrize(("coding", "pack"), PACKERS)
def test_what_is_none_or_not_whole_is_refused(coding: str, pack: Callable[[bytes], bytes]) -> None:
    packed = pack(b"x" * 1000 + b"y")
    with pytest.raises(InvalidRequest, match=f"says that it is {coding}"):
        [*Decoder(coding).feed(b'{"model": "m"}' * 9)]
    cut = Decoder(coding)
    [*cut.feed(packed[:-3])]
    with pytest.raises(InvalidRequest, match="cut short"):
        cut.end()
    Decoder(coding).end()


@pytest.mark.parametrize(
    ("said", "coding"),
    [([], ""), ([b"identity"], ""), ([b"GZIP"], "gzip"), ([b" deflate , identity"], "deflate")],
)
def test_what_the_head_says(said: list[bytes], coding: str) -> None:
    assert coding_of({"headers": [(b"content-encoding", one) for one in said]}) == coding


@pytest.mark.parametrize("said", [[b"br"], [b"gzip, gzip"], [b"gzip", b"deflate"], [b"\xff"]])
def test_what_is_not_read(said: list[bytes]) -> None:
    with pytest.raises(UnsupportedMediaType, match="gzip, deflate or zstd"):
        coding_of({"headers": [(b"content-encoding", one) for one in said]})


@pytest.mark.parametrize("data", [b"", b"a"])
@pytest.mark.parametrize(("coding", "pack"), [("gzip", gzip.compress), ("zstd", zstd.compress)])
def test_a_body_has_so_many_members(
    coding: str, pack: Callable[[bytes], bytes], data: bytes
) -> None:
    """Each is a copy of all that follow: 256 KiB of empty ones took 0.2 s."""
    member = pack(data)
    decoder = Decoder(coding)
    assert b"".join(decoder.feed(member * MAX_MEMBERS)) == data * MAX_MEMBERS
    decoder.end()
    with pytest.raises(InvalidRequest, match="members"):
        list(decoder.feed(member))


def test_a_window_that_is_too_large_is_refused() -> None:
    far = {int(zstd.CompressionParameter.window_log): 27}
    packed = zstd.compress(bytes(1 << 20), options=far)[:4] + b"\x00\xb0" + bytes(20)
    with pytest.raises(InvalidRequest, match="says that it is zstd"):
        [*Decoder("zstd").feed(packed)]
