"""Metrics of dispatchers and of the work that waits, read from the database at each scrape.

Every gateway exports the same values: an alert takes the maximum over gateways, never the sum.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector
from sqlalchemy.exc import SQLAlchemyError

from store.repositories import dispatch_count
from store.repositories.dispatch_count import Backlog, EngineCounts
from store.session import Database

_COUNTERS = {
    "num_claimed": ("coserve_dispatch_claimed_rows", "Rows of batches claimed."),
    "num_results": ("coserve_dispatch_results", "Results of rows accepted."),
    "num_retries": ("coserve_dispatch_retries", "Attempts put back to be repeated."),
    "num_fenced": ("coserve_dispatch_fenced_results", "Results refused: the row was another's."),
    "num_refused": ("coserve_dispatch_refused_calls", "Calls the engine turned away: it was full."),
    "num_losses": ("coserve_dispatch_lost_calls", "Calls lost with the engine or its connection."),
    "num_handed_back": ("coserve_dispatch_handed_back_rows", "Rows handed back for others."),
}
_GAUGES = {
    "num_in_flight": ("coserve_dispatch_in_flight_rows", "Rows at the engine."),
    "num_unwritten": ("coserve_dispatch_unwritten_outcomes", "Outcomes that wait to be written."),
    "window_rows": ("coserve_dispatch_window_rows", "Rows that the engine has room for."),
    "in_flight_bytes": ("coserve_dispatch_in_flight_bytes", "Lines of the rows at the engine."),
    "unwritten_bytes": ("coserve_dispatch_unwritten_bytes", "Results that wait to be written."),
}


class DispatchMetrics(Collector):
    """What was read last, as metrics. Without a database there are none, rather than old ones."""

    def __init__(self) -> None:
        self._engines: Sequence[EngineCounts] = ()
        self._backlog: Sequence[Backlog] = ()

    async def read(self, database: Database) -> None:
        try:
            async with database.unit_of_work() as session:
                self._engines = await dispatch_count.by_engine(session)
                self._backlog = await dispatch_count.backlog(session)
        except (SQLAlchemyError, OSError):
            self._engines = self._backlog = ()

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        """Families of metrics, as prometheus_client asks for them."""
        for field, (name, text) in _COUNTERS.items():
            counter = CounterMetricFamily(name, text, labels=["engine"])
            for one in self._engines:
                counter.add_metric([one.engine_url], getattr(one.counts, field))
            yield counter
        for field, (name, text) in _GAUGES.items():
            gauge = GaugeMetricFamily(name, text, labels=["engine"])
            for one in self._engines:
                gauge.add_metric([one.engine_url], getattr(one.counts, field))
            yield gauge
        heartbeat = GaugeMetricFamily(
            "coserve_dispatch_heartbeat_age_seconds",
            "Since the last heartbeat of the engine's dispatcher.",
            labels=["engine"],
        )
        for one in self._engines:
            if one.heartbeat_age_s is not None:
                heartbeat.add_metric([one.engine_url], one.heartbeat_age_s)
        yield heartbeat
        yield from self._waiting()

    def _waiting(self) -> Iterator[GaugeMetricFamily]:
        families = {
            "num_batches": ("coserve_batch_unfinished_batches", "Batches with unfinished rows."),
            "num_rows": ("coserve_batch_unfinished_rows", "Rows without a result."),
            "lag_s": ("coserve_batch_lag_seconds", "Longest time a batch was without a result."),
        }
        for field, (name, text) in families.items():
            gauge = GaugeMetricFamily(name, text, labels=["model"])
            for one in self._backlog:
                gauge.add_metric([one.model], getattr(one, field))
            yield gauge
