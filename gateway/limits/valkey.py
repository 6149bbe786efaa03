"""Buckets in Valkey, shared by every gateway: one script, one round trip, the server's clock.

A bucket's key holds the instant at which it is full again and expires then, so a bucket without a
key is full. That holds only if no key was lost: a marker without expiry says since when, and
younger than `LOST_BACKLOG_US` it makes unknown buckets start as if half of them had been used. A
Valkey that kept its data over a restart has kept the marker too (decision 0054).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gateway.limits.buckets import (
    LOST_BACKLOG_US,
    MAX_BACKLOG_US,
    PERIOD_US,
    Buckets,
    Charge,
    Taken,
)
from gateway.limits.limiter import RateLimiter
from gateway.limits.rates import Rates
from gateway.limits.script import TIMEOUT_S, Script
from gateway.observability.metrics import Metrics
from gateway.settings import GatewaySettings
from service.broker import Broker

SINCE_KEY: Final = "coserve:rate:since"

_SCRIPT: Final = f"""
local clock = redis.call('TIME')
local now = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
local since = tonumber(redis.call('GET', KEYS[1]))
if not since then
  since = now
  redis.call('SET', KEYS[1], string.format('%.0f', now))
end
local unknown = math.max(0, math.min({LOST_BACKLOG_US}, since + {LOST_BACKLOG_US} - now))
local asks = ARGV[1] == 'take'
local before, after, fits = {{}}, {{}}, 1
for i = 2, #KEYS do
  local full_at = tonumber(redis.call('GET', KEYS[i]))
  local backlog = unknown
  if full_at then
    backlog = math.max(0, math.min({MAX_BACKLOG_US}, full_at - now))
  end
  before[i - 1] = backlog
  after[i - 1] = backlog + tonumber(ARGV[i])
  if asks and after[i - 1] > {PERIOD_US} then
    fits = 0
  end
end
if fits == 0 then
  table.insert(before, 1, 0)
  return before
end
for i = 2, #KEYS do
  local backlog = math.max(0, math.min({MAX_BACKLOG_US}, after[i - 1]))
  after[i - 1] = backlog
  if backlog > 0 then
    redis.call('SET', KEYS[i], string.format('%.0f', now + backlog), 'PX', math.ceil(backlog / 1000))
  else
    redis.call('DEL', KEYS[i])
  end
end
table.insert(after, 1, 1)
return after
"""  # noqa: E501 - one statement of another language


class ValkeyBuckets:
    """Buckets on a server; raises what `Script.run` raises when it cannot be reached."""

    def __init__(self, broker: Broker, *, timeout_s: float = TIMEOUT_S) -> None:
        self._script = Script(broker, _SCRIPT, timeout_s=timeout_s)

    async def take(self, charges: Sequence[Charge]) -> Taken:
        allowed, *backlogs_us = await self._run("take", charges)
        return Taken(bool(allowed), tuple(backlogs_us))

    async def settle(self, charges: Sequence[Charge]) -> None:
        await self._run("settle", charges)

    async def close(self) -> None:
        await self._script.close()

    async def _run(self, word: str, charges: Sequence[Charge]) -> list[int]:
        keys = [SINCE_KEY, *(charge.key for charge in charges)]
        found: list[int] = await self._script.run(
            keys, [word, *(charge.cost_us for charge in charges)]
        )
        return found


# --- The limiter of a gateway, made of its settings.


def make_limiter(buckets: Buckets, settings: GatewaySettings, metrics: Metrics) -> RateLimiter:
    """The limiter over buckets that all gateways share."""
    return RateLimiter(
        buckets,
        metrics,
        key_default=Rates(settings.key_requests_per_minute, settings.key_tokens_per_minute),
        project_default=Rates(
            settings.project_requests_per_minute, settings.project_tokens_per_minute
        ),
    )
