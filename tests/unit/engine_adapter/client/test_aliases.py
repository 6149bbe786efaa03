from __future__ import annotations

import pytest

from engine_adapter.client.aliases import parse_aliases


def test_an_alias_has_a_model_and_perhaps_others_for_when_it_is_away() -> None:
    assert parse_aliases("") == {}
    assert parse_aliases("fast = small|big,gpt-4o=big,") == {
        "fast": ("small", "big"),
        "gpt-4o": ("big",),
    }


@pytest.mark.parametrize("text", ["fast", "=small", "fast=", "a=b|", "a=b,a=c", "a=b,b=c"])
def test_what_is_no_alias_is_said(text: str) -> None:
    with pytest.raises(ValueError, match=r"alias|form"):
        parse_aliases(text)
