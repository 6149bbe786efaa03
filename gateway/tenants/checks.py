"""Names, limits and lifetimes that a tenant may have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from api.errors import InvalidRequest
from api.shared_rules import SERVED_TIERS
from store.repositories.project import Limit

MAX_NAME_CHARS: Final = 100
MIN_LIFETIME_S: Final = 60
MAX_LIFETIME_S: Final = 10 * 365 * 86_400
MAX_LIMITS: Final = {
    "requests_per_minute": 2**31 - 1,
    "tokens_per_minute": 10**15,
    "batch_enqueued_token_limit": 10**15,
    "concurrent_requests": 2**31 - 1,
    "live_batches": 2**31 - 1,
    "batches_per_hour": 2**31 - 1,
    "stored_bytes": 10**18,
    "flex_wait_seconds": 3600,
}
"""The limits there are, and what their columns and the arithmetic of buckets can hold."""

MAX_MODELS: Final = 64
MAX_MODEL_CHARS: Final = 256

KEY_LIMITS: Final = (
    "requests_per_minute",
    "tokens_per_minute",
    "service_tier",
    "flex_wait_seconds",
    "may_raise_tier",
)
"""The columns of a key's own limits."""


def check_name(name: str) -> str:
    """A name without blanks at its ends.

    Raises:
        InvalidRequest: It is empty, too long, or cannot be printed.
    """
    name = name.strip()
    if not 1 <= len(name) <= MAX_NAME_CHARS or not name.isprintable():
        raise InvalidRequest(
            f"A name has 1 to {MAX_NAME_CHARS} printable characters.", param="name"
        )
    return name


def check_limits(limits: Mapping[str, Limit]) -> None:
    """Refuse limits below zero or too large; null is no limit of one's own, 0 is nothing at all.

    Raises:
        InvalidRequest: Naming the limit.
    """
    for name, value in limits.items():
        if name == "models":
            _check_models(value)
        elif name == "service_tier":
            _check_tier(value)
        elif (
            value is not None
            and name != "may_raise_tier"
            and not (isinstance(value, int) and 0 <= value <= MAX_LIMITS[name])
        ):
            raise InvalidRequest(
                f"{name} must lie between 0 and {MAX_LIMITS[name]:,}.", param=f"coserve.{name}"
            )


def _check_models(models: Limit) -> None:
    if models is None:
        return
    if not isinstance(models, list) or len(models) > MAX_MODELS or not all(map(_is_model, models)):
        raise InvalidRequest(
            f"models holds up to {MAX_MODELS} names of up to {MAX_MODEL_CHARS} characters.",
            param="coserve.models",
        )


def _check_tier(tier: Limit) -> None:
    if tier is not None and tier not in SERVED_TIERS:
        raise InvalidRequest(
            f"service_tier must be one of {', '.join(SERVED_TIERS)}.", param="coserve.service_tier"
        )


def _is_model(name: str) -> bool:
    return 1 <= len(name) <= MAX_MODEL_CHARS and "\0" not in name


def check_lifetime(seconds: int | None) -> int | None:
    """Seconds until a key expires; none for never.

    Raises:
        InvalidRequest: Shorter than a minute or longer than ten years.
    """
    if seconds is not None and not MIN_LIFETIME_S <= seconds <= MAX_LIFETIME_S:
        raise InvalidRequest(
            f"expires_in_seconds must lie between {MIN_LIFETIME_S} and {MAX_LIFETIME_S}.",
            param="expires_in_seconds",
        )
    return seconds
