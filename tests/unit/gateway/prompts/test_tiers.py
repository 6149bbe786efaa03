"""The tier a request is served in, by what its key, project, alias and body say."""

from __future__ import annotations

from typing import Any

import pytest

from engine_adapter.client.aliases import parse_aliases, parse_tiers
from gateway.auth.principal import Principal
from gateway.prompts.tiers import with_tier

ALIASES = {"background": "flex", "plain": "default"}

# default of the key or its project, may raise, model, asked: what the body says afterwards
SITUATIONS: list[tuple[str | None, bool, str, str | None, str | None]] = [
    (None, False, "m", None, None),
    (None, False, "m", "auto", "auto"),
    (None, False, "m", "priority", "priority"),
    (None, False, "m", "flex", "flex"),
    ("default", False, "m", "flex", "flex"),
    ("flex", False, "m", None, "flex"),
    ("flex", False, "m", "auto", "flex"),
    ("flex", False, "m", "default", "flex"),
    ("flex", False, "m", "priority", "flex"),
    ("flex", False, "m", "flex", "flex"),
    ("flex", True, "m", None, "flex"),
    ("flex", True, "m", "auto", "flex"),
    ("flex", True, "m", "default", "default"),
    ("flex", True, "m", "priority", "default"),
    ("flex", True, "m", "flex", "flex"),
    (None, False, "background", None, "flex"),
    (None, False, "background", "default", "flex"),
    (None, True, "background", "default", "default"),
    ("default", False, "background", "auto", "flex"),
    ("flex", False, "plain", None, "flex"),
]


@pytest.mark.parametrize(("default", "raises", "model", "asked", "served"), SITUATIONS)
def test_situations(
    default: str | None, raises: bool, model: str, asked: str | None, served: str | None
) -> None:
    who = Principal("proj_1", "key_1", service_tier=default, may_raise_tier=raises)
    body: dict[str, Any] = {"model": model, "messages": []}
    if asked is not None:
        body["service_tier"] = asked
    before = dict(body)
    assert with_tier(body, who, ALIASES).get("service_tier") == served
    assert body == before, "the caller's body is not changed"


def test_null_is_no_tier() -> None:
    who = Principal("proj_1", "key_1", service_tier="flex")
    body = {"model": "m", "service_tier": None}
    assert with_tier(body, who, {})["service_tier"] == "flex"


def test_aliases_with_a_tier() -> None:
    text = "chat=big|small, quiet = big | small @ flex, plain=big@default"
    assert parse_aliases(text) == {
        "chat": ("big", "small"),
        "quiet": ("big", "small"),
        "plain": ("big",),
    }
    assert parse_tiers(text) == {"quiet": "flex", "plain": "default"}


@pytest.mark.parametrize(
    "text", ["quiet=big@", "quiet=big@batch", "quiet=@flex", "quiet=big@flex@flex"]
)
def test_wrong_tiers_of_aliases(text: str) -> None:
    with pytest.raises(ValueError, match="quiet="):
        parse_tiers(text)
