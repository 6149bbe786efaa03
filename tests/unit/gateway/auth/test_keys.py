from __future__ import annotations

import pytest

from api.errors import AuthenticationFailed
from gateway.auth.keys import key_in, masked


@pytest.mark.parametrize("header", ["Bearer abc", "bearer abc", "BEARER   abc  "])
def test_the_scheme_is_case_insensitive(header: str) -> None:
    assert key_in({"authorization": header}) == "abc"


@pytest.mark.parametrize(
    "header", ["", "   ", "Bearer", "Bearer ", "Basic abc", "abc", "Bearer " + "x" * 300]
)
def test_no_usable_token(header: str) -> None:
    with pytest.raises(AuthenticationFailed) as refused:
        key_in({"authorization": header})
    assert refused.value.status == 401
    assert refused.value.headers["www-authenticate"] == "Bearer"


def test_other_services_headers_count_where_there_is_no_bearer_token() -> None:
    assert key_in({"api-key": " abc "}) == key_in({"x-api-key": "abc"}) == "abc"
    assert key_in({"authorization": "Basic x", "x-api-key": "abc"}) == "abc"
    assert key_in({"authorization": "Bearer abc", "x-api-key": "other"}) == "abc"
    with pytest.raises(AuthenticationFailed):
        key_in({})


def test_a_masked_key_cannot_be_used() -> None:
    key = "sk-coserve-abcdefghijklmnop"
    assert masked(key) == "sk-***op"
    assert masked("short") == "***"
