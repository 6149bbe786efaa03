"""Metrics of webhooks, read from the database at each scrape: the workers have no such page.

Every gateway exports the same values: an alert takes the maximum over gateways, never the sum.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from sqlalchemy.exc import SQLAlchemyError

from store.repositories import webhook_delivery as deliveries
from store.repositories.webhook_delivery import WebhookTotals
from store.session import Database


class WebhookMetrics(Collector):
    """What was read last, as metrics. Without a database there are none, rather than old ones."""

    def __init__(self) -> None:
        self._totals: WebhookTotals | None = None

    async def read(self, database: Database) -> None:
        try:
            async with database.unit_of_work() as session:
                self._totals = await deliveries.totals(session)
        except (SQLAlchemyError, OSError):
            self._totals = None

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Families of metrics, as prometheus_client asks for them."""
        totals = self._totals
        pending = GaugeMetricFamily(
            "coserve_webhooks_pending", "Deliveries that neither arrived nor were given up."
        )
        oldest = GaugeMetricFamily(
            "coserve_webhooks_oldest_seconds", "Age of the oldest event among them."
        )
        endpoints = GaugeMetricFamily(
            "coserve_webhook_endpoints", "Endpoints that fail or are disabled.", labels=["status"]
        )
        if totals is not None:
            pending.add_metric([], totals.num_pending)
            oldest.add_metric([], totals.oldest_s)
            endpoints.add_metric(["failing"], totals.num_failing)
            endpoints.add_metric(["disabled"], totals.num_disabled)
        yield from (pending, oldest, endpoints)
