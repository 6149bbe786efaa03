"""Bodies and lines that cannot be read: where, and why."""

from __future__ import annotations

import pytest

from api.errors import InvalidRequest
from api.json_input import BOM, NotUtf8, read, read_object


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"", "is empty: JSON is expected"),
        (b" \n", "is empty: JSON is expected"),
        (b'{"a": }', "is not valid JSON (character 7)"),
        (b'{"a": 1} x', "is not valid JSON (character 10)"),
        (b'{"a": NaN}', "is not valid JSON (character 7)"),
        (b'{"a": "\\ud83d"}', "has half of a surrogate pair, which is no character (character 8)"),
        (
            b'{"a": "\\udc00\\ud800"}',
            "has half of a surrogate pair, which is no character (character 8)",
        ),
        (b'{"a": 1e400}', "has a number that is too large (character 7)"),
        (b'{"a": ' + b"9" * 5000 + b"}", "has a number that is too large (character 7)"),
    ],
)
def test_it_is_said_why(raw: bytes, why: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        read(raw)
    assert (refused.value.message, refused.value.code) == (f"The body {why}.", "invalid_json")


@pytest.mark.parametrize(
    "raw", [b'"\xe9"', "{}".encode("utf-16"), b'"\xed\xa0\x80"', b'"\xc0\xaf"']
)
def test_what_is_not_utf8(raw: bytes) -> None:
    with pytest.raises(NotUtf8, match=r"^This line is not UTF-8 \(byte \d\)\.$"):
        read(raw, "This line")


def test_a_byte_order_mark_says_nothing() -> None:
    assert read_object(BOM + b'{"a": 1}') == {"a": 1}
    with pytest.raises(InvalidRequest):
        read(BOM + BOM + b"{}")


@pytest.mark.parametrize("raw", [b"[]", b"null", b'"a"', b"1"])
def test_a_body_is_an_object(raw: bytes) -> None:
    with pytest.raises(InvalidRequest, match="must be a JSON object"):
        read_object(raw)
