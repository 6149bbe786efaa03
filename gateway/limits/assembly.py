"""The limiter of a gateway, made of its settings."""

from __future__ import annotations

from typing import Final

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError

from gateway.limits.limiter import RateLimiter
from gateway.limits.rates import Rates
from gateway.limits.valkey import ValkeyBuckets
from gateway.observability.metrics import Metrics
from gateway.settings import GatewaySettings

MAX_CONNECTIONS: Final = 32
"""Each is used for a fraction of a millisecond; further requests wait their turn."""

TIMEOUT_S: Final = 0.25
"""How long a request may wait for its limits before they are kept here instead."""


def make_limits_client(broker_url: str) -> Redis:
    """A client that gives up soon: a request waits for it. It connects when it is first used.

    One retry, for a connection that the server has closed since it was last used.
    """
    pool = BlockingConnectionPool.from_url(
        broker_url,
        max_connections=MAX_CONNECTIONS,
        timeout=TIMEOUT_S,
        socket_timeout=TIMEOUT_S,
        socket_connect_timeout=TIMEOUT_S,
        retry=Retry(NoBackoff(), 1, supported_errors=(ConnectionError,)),
    )
    # The client owns the pool: it is closed with it.
    return Redis.from_pool(pool)


def make_limiter(client: Redis, settings: GatewaySettings, metrics: Metrics) -> RateLimiter:
    """The limiter over buckets in Valkey."""
    return RateLimiter(
        ValkeyBuckets(client),
        metrics,
        key_default=Rates(settings.key_requests_per_minute, settings.key_tokens_per_minute),
        project_default=Rates(
            settings.project_requests_per_minute, settings.project_tokens_per_minute
        ),
    )
