"""Metrics of what has no page of its own: batches, dispatchers, workers, webhooks and the disk."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from sqlalchemy.exc import SQLAlchemyError

from engine_adapter.client.pool import EnginePool
from gateway.batch_shapes import extensions
from gateway.verdict.judge import CHAT_STATES, Verdict
from gateway.verdict.remedies import REMEDIES
from store.repositories import dispatch_count, overdue, overview, stage, stage_count
from store.repositories import webhook_delivery as deliveries
from store.repositories.dispatch_count import Backlog, EngineCounts
from store.repositories.stage_count import StageTotals
from store.repositories.webhook_delivery import WebhookTotals
from store.session import Database

# --- Metrics of batches as such, read from the database at each scrape.
#
# Every gateway exports the same values: an alert takes the maximum over gateways, never the sum.


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


# --- Metrics of dispatchers and of the work that waits, read from the database at each scrape.
#
# Every gateway exports the same values: an alert takes the maximum over gateways, never the sum.


_COUNTERS = {
    "num_claimed": ("coserve_dispatch_claimed_rows", "Rows of batches claimed."),
    "num_results": ("coserve_dispatch_results", "Results of rows accepted."),
    "num_retries": ("coserve_dispatch_retries", "Attempts put back to be repeated."),
    "num_fenced": ("coserve_dispatch_fenced_results", "Results refused: the row was another's."),
    "num_refused": ("coserve_dispatch_refused_calls", "Calls the engine turned away: it was full."),
    "num_losses": ("coserve_dispatch_lost_calls", "Calls lost with the engine or its connection."),
    "num_handed_back": (
        "coserve_dispatch_handed_back_rows",
        "Rows taken back from the engine for other batches, or for chat.",
    ),
}
_GAUGES = {
    "num_in_flight": ("coserve_dispatch_in_flight_rows", "Rows at the engine."),
    "num_unwritten": ("coserve_dispatch_unwritten_outcomes", "Outcomes that wait to be written."),
    "window_rows": ("coserve_dispatch_window_rows", "Rows that the engine has room for."),
    "in_flight_bytes": (
        "coserve_dispatch_in_flight_bytes",
        "Bytes of the input lines of rows at the engine.",
    ),
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
            "Time since the last heartbeat of the engine's dispatcher.",
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


# --- Metrics of the workers, read from the database at each scrape: they have no page of their own.
#
# Every gateway exports the same values: an alert takes the maximum over gateways, never the sum.


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
            "coserve_worker_last_run_age_seconds",
            "Time since the last run of a stage ended.",
            labels=["stage"],
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
            "Longest time that a batch has waited for a worker; 0 if none waits.",
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


# --- Metrics of webhooks, read from the database at each scrape: the workers have no such page.
#
# Every gateway exports the same values: an alert takes the maximum over gateways, never the sum.


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


# --- The verdict, as each gateway reaches it: alerts on what it judges read these.


class VerdictMetrics(Collector):
    """What was judged last, as metrics."""

    def __init__(self) -> None:
        self._verdict: Verdict | None = None

    def read(self, verdict: Verdict) -> None:
        """Take the newest one."""
        self._verdict = verdict

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Families of metrics, as prometheus_client asks for them."""
        chat = GaugeMetricFamily(
            "coserve_chat_verdict",
            "What the overview says of chat: 1 for the state that it is in.",
            labels=["state"],
        )
        issues = GaugeMetricFamily(
            "coserve_issues", "Issues that the overview shows, by code.", labels=["code"]
        )
        if self._verdict is not None:
            for state in CHAT_STATES:
                chat.add_metric([state], state == self._verdict.chat.state)
            codes = Counter(one.code for one in self._verdict.issues)
            for code in REMEDIES:
                issues.add_metric([code], codes[code])
        yield from (chat, issues)


# --- How full the disk below `COSERVE_HOME` is, asked at each scrape.


class HostMetrics(Collector):
    """The disk that files, logs and the embedded database are on."""

    def __init__(self, home: Path) -> None:
        self._home = home

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Families of metrics, as prometheus_client asks for them."""
        disk = GaugeMetricFamily(
            "coserve_disk_bytes", "The disk below COSERVE_HOME, by state.", labels=["state"]
        )
        try:
            usage = shutil.disk_usage(_existing(self._home))
        except OSError:
            yield disk
            return
        disk.add_metric(["total"], usage.total)
        disk.add_metric(["free"], usage.free)
        yield disk


def _existing(path: Path) -> Path:
    """The folder itself, or the nearest one above it that is there."""
    return next(one for one in (path.absolute(), *path.absolute().parents) if one.exists())
