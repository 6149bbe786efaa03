"""Which service tier a request is served in.

A key, its project and a model alias may each have a default tier. A request without a tier, or
with `auto`, gets the default; its own tier may lower that, and raise it only where the key may.
So a program that knows nothing of tiers gives way to chat without a change to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from api.shared_rules import SERVED_TIERS
from gateway.auth.principal import Principal

LOWEST_LAST: Final = {tier: place for place, tier in enumerate(SERVED_TIERS)}


def with_tier(
    body: dict[str, Any], principal: Principal, alias_tiers: Mapping[str, str]
) -> dict[str, Any]:
    """A checked body that names the tier it is served in, where that is not the one it names.

    Args:
        body: Of any path that takes a `service_tier`; `model` is as the client wrote it.
        principal: Whose request it is.
        alias_tiers: The default tiers of model aliases.
    """
    default = default_tier(principal, alias_tiers.get(body["model"]))
    asked = body.get("service_tier")
    if default == "default":
        return body
    if asked in (None, "auto"):
        tier = default
    else:
        tier = _served(asked) if principal.may_raise_tier else _lower(default, _served(asked))
    return body if tier == asked else {**body, "service_tier": tier}


def default_tier(principal: Principal, alias_tier: str | None) -> str:
    """The tier of a request that names none.

    Args:
        principal: Whose request it is.
        alias_tier: The default tier of the name under which it asks for a model.
    """
    return _lower(principal.service_tier, alias_tier)


def _served(asked: str) -> str:
    """Only flex is a tier of its own; every other one is served as `default` (row C-26)."""
    return asked if asked in LOWEST_LAST else "default"


def _lower(*tiers: str | None) -> str:
    return max((tier or "default" for tier in tiers), key=LOWEST_LAST.__getitem__)
