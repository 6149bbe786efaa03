from __future__ import annotations

import pytest

from engine_adapter.wire.errors import AuthenticationFailed
from gateway.auth.keys import bearer_token, masked


@pytest.mark.parametrize("header", ["Bearer abc", "bearer abc", "BEARER   abc  "])
def test_the_scheme_is_case_insensitive(header: str) -> None:
    assert bearer_token(header) == "abc"


@pytest.mark.parametrize(
    "header", [None, "", "   ", "Bearer", "Bearer ", "Basic abc", "abc", "Bearer " + "x" * 300]
)
def test_no_usable_token(header: str | None) -> None:
    with pytest.raises(AuthenticationFailed) as refused:
        bearer_token(header)
    assert refused.value.status == 401
    assert refused.value.headers["www-authenticate"] == "Bearer"


def test_a_masked_key_cannot_be_used() -> None:
    key = "sk-coserve-abcdefghijklmnop"
    assert masked(key) == "sk-***op"
    assert masked("short") == "***"
