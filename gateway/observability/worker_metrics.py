"""Metrics of the workers, read from the database at each scrape: they have no page of their own.

Every gateway exports the same values: an alert takes the maximum over gateways, never the sum.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from sqlalchemy.exc import SQLAlchemyError

from store.repositories import overdue, stage, stage_count
from store.repositories.stage_count import StageTotals
from store.session import Database


class WorkerMetrics(Collector):
    """What was read last, as metrics. Without a database there are none, rather than old ones."""

    def __init__(self) -> None:
        self._stages: Sequence[StageTotals] = ()
        self._oldest_due_s: float | None = None
        self._overdue: Mapping[str, int] = {}

    async def read(self, database: Database) -> None:
        try:
            async with database.unit_of_work() as session:
                self._stages = await stage_count.totals(session)
                self._oldest_due_s = await stage.oldest_due_s(session) or 0.0
                self._overdue = await overdue.by_kind(session)
        except (SQLAlchemyError, OSError):
            self._stages, self._oldest_due_s, self._overdue = (), None, {}

    def collect(self) -> Iterator[Metric]:
        """Families of metrics, as prometheus_client asks for them."""
        runs = CounterMetricFamily(
            "coserve_worker_runs", "Runs of a stage that ended.", labels=["stage", "outcome"]
        )
        wall = CounterMetricFamily("coserve_worker_seconds", "Time in a stage.", labels=["stage"])
        cpu = CounterMetricFamily(
            "coserve_worker_cpu_seconds", "CPU time in a stage.", labels=["stage"]
        )
        memory = GaugeMetricFamily(
            "coserve_worker_peak_rss_bytes",
            "The most memory that the process of the newest run had.",
            labels=["stage"],
        )
        age = GaugeMetricFamily(
            "coserve_worker_last_run_age_seconds", "Since a run ended.", labels=["stage"]
        )
        for one in self._stages:
            runs.add_metric([one.stage, "ok"], one.num_runs - one.num_failed)
            runs.add_metric([one.stage, "error"], one.num_failed)
            wall.add_metric([one.stage], one.wall_s)
            cpu.add_metric([one.stage], one.cpu_s)
            memory.add_metric([one.stage], one.peak_rss_bytes)
            age.add_metric([one.stage], one.ended_age_s)
        oldest = GaugeMetricFamily(
            "coserve_stage_work_oldest_seconds",
            "For how long a batch has wanted a worker that none has taken, the longest.",
        )
        if self._oldest_due_s is not None:
            oldest.add_metric([], self._oldest_due_s)
        late = GaugeMetricFamily(
            "coserve_collection_overdue_objects",
            "Objects that should have been removed an hour ago, 10,000 at most.",
            labels=["kind"],
        )
        for kind, num in self._overdue.items():
            late.add_metric([kind], num)
        yield from (runs, wall, cpu, memory, age, oldest, late)
