"""Metrics of batches as such, read from the database at each scrape.

Every gateway exports the same values: an alert takes the maximum over gateways, never the sum.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from sqlalchemy.exc import SQLAlchemyError

from engine_adapter.client.pool import EnginePool
from gateway.batch_shapes import extensions
from store.repositories import overview
from store.session import Database

MAX_PREDICTED: Final = 100
"""Live batches that are predicted at each scrape: those whose window ends first."""


class BatchMetrics(Collector):
    """What was read last, as metrics. Without a database there are none, rather than old ones."""

    def __init__(self) -> None:
        self._by_status: Mapping[str, int] | None = None
        self._num_late = 0

    async def read(self, database: Database, engines: EnginePool) -> None:
        try:
            async with database.snapshot() as session:
                by_status = await overview.num_by_status(session)
                soonest = await overview.due_first(session, limit=MAX_PREDICTED)
                said = await extensions(session, engines, soonest)
        except (SQLAlchemyError, OSError):
            self._by_status = None
            return
        self._by_status = by_status
        self._num_late = sum(one.feasible is False for one in said)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Families of metrics, as prometheus_client asks for them."""
        batches = GaugeMetricFamily("coserve_batches", "Batches by status.", labels=["status"])
        late = GaugeMetricFamily(
            "coserve_batch_predicted_late_batches",
            "Live batches that are predicted to end after their completion window.",
        )
        if self._by_status is not None:
            for status, num in self._by_status.items():
                batches.add_metric([status], num)
            late.add_metric([], self._num_late)
        yield from (batches, late)
