from __future__ import annotations

import orjson
import pytest

from api.errors import InvalidRequest
from api.json_shape import MAX_CONTAINERS, MAX_DEPTH, MAX_STRINGS, MAX_VALUES, check_shape


def nested(depth: int) -> bytes:
    return b'{"a":' * depth + b"1" + b"}" * depth


def test_as_deep_as_allowed_and_one_deeper() -> None:
    check_shape(nested(MAX_DEPTH))
    for deep in (nested(MAX_DEPTH + 1), b"[" * (MAX_DEPTH + 1), b"[" * 1_000_000):
        with pytest.raises(InvalidRequest, match=r"64 levels|100,000 objects") as refused:
            check_shape(deep)
        assert refused.value.code == "json_too_complex"


def test_many_values_side_by_side() -> None:
    check_shape(b"[" + b"[]," * (MAX_CONTAINERS - 2) + b"[]]")
    with pytest.raises(InvalidRequest, match="100,000 objects"):
        check_shape(b"[" + b"{}," * MAX_CONTAINERS + b"{}]")
    check_shape(b"[" + b"0," * (MAX_VALUES - 1) + b"0]")
    with pytest.raises(InvalidRequest, match="1,000,000 values"):
        check_shape(b"[" + b"0," * MAX_VALUES + b"0]")
    check_shape(b"[" + b'"",' * (MAX_STRINGS - 1) + b'""]')
    with pytest.raises(InvalidRequest, match="250,000 strings"):
        check_shape(b"[" + b'"",' * MAX_STRINGS + b'""]')


@pytest.mark.parametrize(
    "text", ["[" * 1000, "{{{" * 300, '"[[' * 200, '\\"[[[' * 200, "\\\\[" * 200, "[\n" * 200]
)
def test_brackets_in_strings_do_not_count(text: str) -> None:
    body = orjson.dumps({"messages": [{"role": "user", "content": text}] * 20})
    check_shape(body)
    with pytest.raises(InvalidRequest, match="64 levels"):
        check_shape(b'{"a":' * 63 + body + b"}" * 63)
