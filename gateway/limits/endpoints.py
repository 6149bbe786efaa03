"""How often a project may ask for what is not a prompt: one table, by the first part of the path.

Prompts have limits of their own (`gateway.prompts`). The limits here keep scripts that poll without
a pause from filling the event loop and the database; they are asked once the key is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from api.errors import RateLimited
from gateway.limits.buckets import Charge, cost_us, wait_us
from gateway.limits.limiter import RateLimiter

REQUESTS_PER_MINUTE: Final[Mapping[str, int]] = {
    "models": 6000,
    "files": 6000,
    "uploads": 6000,
    "batches": 6000,
    "responses": 6000,  # those that are stored: read, cancelled, deleted
    "conversations": 6000,
    "webhook_endpoints": 1200,
    "webhook_event_types": 1200,
    "organization": 3000,
    "admin": 3000,  # the dashboard
}


def parse_rates(said: str) -> dict[str, int]:
    """The table with the changes of a setting, `files=600,batches=1200`.

    Raises:
        ValueError: A part names no group, or no number of at least 1.
    """
    rates = dict(REQUESTS_PER_MINUTE)
    for part in filter(None, (part.strip() for part in said.split(","))):
        group, _, number = part.partition("=")
        if group not in rates or not number.isdecimal() or int(number) < 1:
            raise ValueError(f"'{part}' is not GROUP=NUMBER with a group of {', '.join(rates)}")
        rates[group] = int(number)
    return rates


class EndpointRates:
    """Counts requests by project and group, in the buckets that all gateways share."""

    def __init__(self, limiter: RateLimiter, rates: Mapping[str, int]) -> None:
        self._limiter = limiter
        self._rates = rates

    async def count(self, project_id: str, path: str) -> None:
        """Count a request for a path.

        Raises:
            RateLimited: There were too many of its group within a minute.
        """
        group = path.removeprefix("/v1").removeprefix("/").partition("/")[0]
        per_minute = self._rates.get(group)
        if per_minute is None:
            return
        cost = cost_us(1, per_minute)
        _, taken = await self._limiter.take([Charge(f"coserve:rate:{project_id}:{group}", cost)])
        if not taken.allowed:
            wait_s = max(1, -(-wait_us(taken.backlogs_us[0], cost) // 1_000_000))
            raise RateLimited(
                f"Rate limit reached for this project on requests to /{group} per minute: limit "
                f"{per_minute}. Please try again in {wait_s}s.",
                headers={"retry-after": str(wait_s)},
            )
