"""The limiter of a gateway, made of its settings."""

from __future__ import annotations

from gateway.limits.buckets import Buckets
from gateway.limits.limiter import RateLimiter
from gateway.limits.rates import Rates
from gateway.observability.metrics import Metrics
from gateway.settings import GatewaySettings


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
