"""What of a head is parsed once more has a bound before it is."""

from __future__ import annotations

import pytest
from starlette.types import Scope

from api.errors import InvalidRequest, UnsupportedMediaType
from gateway.http.heads import (
    MAX_COOKIE_ESCAPES,
    MAX_PARAMETERS,
    MAX_TYPE_BYTES,
    MAX_TYPE_OPTIONS,
    check_head,
)


def scope(query: bytes = b"", media_type: bytes | None = None) -> Scope:
    headers = [(b"host", b"t")]
    if media_type is not None:
        headers.append((b"content-type", media_type))
    return {"query_string": query, "headers": headers}


@pytest.mark.parametrize("one", [b"a", b"", b"a=b", b"%41="])
def test_a_query_has_so_many_parameters(one: bytes) -> None:
    check_head(scope(b"&".join([one] * MAX_PARAMETERS)))
    with pytest.raises(InvalidRequest):
        check_head(scope(b"&".join([one] * (MAX_PARAMETERS + 1))))


@pytest.mark.parametrize(
    "media_type",
    [
        b"multipart/form-data" + b";" * 30_000,
        b"multipart/form-data" + b";" * (MAX_TYPE_OPTIONS + 1),
        b"multipart/form-data; boundary=" + b"b" * MAX_TYPE_BYTES,
    ],
)
def test_a_type_is_short(media_type: bytes) -> None:
    with pytest.raises(UnsupportedMediaType):
        check_head(scope(media_type=media_type))


@pytest.mark.parametrize(
    "media_type",
    [None, b"", b"application/json; charset=utf-8", b"multipart/form-data; boundary=" + b"b" * 70],
)
def test_a_usual_one_passes(media_type: bytes | None) -> None:
    check_head(scope(b"limit=3&after=x", media_type))


@pytest.mark.parametrize("escape", [b"\\", b'\\"', b"\\101"])
def test_a_cookie_has_few_escapes(escape: bytes) -> None:
    """Python's own reader takes steps whose number grows with the square of them."""
    few, many = escape * MAX_COOKIE_ESCAPES, escape * (MAX_COOKIE_ESCAPES + 1)
    usual = {"headers": [(b"cookie", b'a="%b"; b=c' % few)], "query_string": b""}
    check_head(usual)
    with pytest.raises(InvalidRequest):
        check_head({**usual, "headers": [(b"cookie", b'a="%b"' % many)]})
