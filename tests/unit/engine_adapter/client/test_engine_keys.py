"""Which API key goes to which engine."""

from __future__ import annotations

import pytest

from engine_adapter.client.engine_keys import parse_keys


def test_keys_are_found_by_the_normal_form_of_an_address() -> None:
    assert parse_keys("") == {}
    assert parse_keys("http://a:80/=x=, https://B:8000/v1 = sk-1") == {
        "http://a": "x=",
        "https://b:8000/v1": "sk-1",
    }


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("http://a", "entry 1 is not of the form"),
        ("http://a=k,nowhere=secret", "entry 2: it does not begin"),
        ("http://a=k,http://a=secret", "entry 2: its address is there twice"),
        ("http://a=a secret", "entry 1 is not of the form"),
        ("http://a=secr\u00e9t", "entry 1 is not of the form"),
    ],
)
def test_what_has_another_form_is_told_without_the_key(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why) as caught:
        parse_keys(text)
    assert "secr" not in str(caught.value)
