"""Every metric of the gateway, each name once. What they mean: docs/metrics.md."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)

from gateway.engines.chat_pressure import ChatPressure
from gateway.observability.latency_metrics import LatencyMetrics
from gateway.observability.runtime_metrics import RuntimeMetrics
from gateway.observability.service_metrics import (
    BatchMetrics,
    DispatchMetrics,
    HostMetrics,
    VerdictMetrics,
    WebhookMetrics,
    WorkerMetrics,
)
from gateway.observability.siblings import OfProcess, PeerMetrics

# A second series for every counter, with its time of birth, which nobody reads.
disable_created_metrics()  # type: ignore[no-untyped-call]

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)


class Metrics:
    """What this process counts, and what every process would say alike.

    Registries of its own, so that two apps in a process do not share counters.
    """

    def __init__(self, home: Path = Path(".coserve")) -> None:
        self.registry = CollectorRegistry()
        self.seen_by_all = CollectorRegistry()
        self.siblings: PeerMetrics | None = None
        self.webhooks = WebhookMetrics()
        self.seen_by_all.register(self.webhooks)
        self.dispatch = DispatchMetrics()
        self.seen_by_all.register(self.dispatch)
        self.runtime = RuntimeMetrics()
        self.seen_by_all.register(self.runtime)
        Gauge(
            "coserve_build_info",
            "Always 1; the label says which release this gateway is.",
            ["version"],
            registry=self.seen_by_all,
        ).labels(version("coserve")).set(1)
        self.latency = LatencyMetrics()
        self.chat = ChatPressure()
        self.registry.register(self.latency)
        self.workers = WorkerMetrics()
        self.seen_by_all.register(self.workers)
        self.batches = BatchMetrics()
        self.seen_by_all.register(self.batches)
        self.verdict = VerdictMetrics()
        self.seen_by_all.register(self.verdict)
        self.host = HostMetrics(home)
        self.seen_by_all.register(self.host)
        ProcessCollector(registry=self.registry)
        self.http_requests = Counter(
            "coserve_http_requests",
            "Requests answered.",
            ["method", "route", "status"],
            registry=self.registry,
        )
        self.http_seconds = Histogram(
            "coserve_http_request_seconds",
            "Time from the arrival of a request to the end of its response.",
            ["route"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.tokens = Counter(
            "coserve_tokens",
            "Tokens used, by kind: prompt, cached, completion.",
            ["model", "request_class", "kind"],
            registry=self.registry,
        )
        self.engine_calls_in_flight = Gauge(
            "coserve_engine_calls_in_flight",
            "Calls of the gateway that an engine is working on.",
            registry=self.registry,
        )
        self.engine_up = Gauge(
            "coserve_engine_up",
            "Whether an engine answers (1) or not (0).",
            ["engine"],
            registry=self.seen_by_all,
        )
        self.disconnects = Counter(
            "coserve_disconnects",
            "Requests whose client went away before the answer's end.",
            registry=self.registry,
        )
        self.rate_limited = Counter(
            "coserve_rate_limited",
            "Requests refused by a rate limit.",
            ["scope", "kind"],
            registry=self.registry,
        )
        self.rate_limit_fallbacks = Counter(
            "coserve_rate_limit_fallbacks",
            "Requests whose limits were kept by this process because Valkey did not answer.",
            registry=self.registry,
        )
        self.flex_refused = Counter(
            "coserve_flex_refused",
            "Flex requests refused because no engine had room.",
            registry=self.registry,
        )
        self.flex_waiting = Gauge(
            "coserve_flex_waiting",
            "Flex requests that wait in line for room.",
            registry=self.registry,
        )
        self.connections_cut = Counter(
            "coserve_connections_cut",
            "Connections refused or ended, by why.",
            ["why"],
            registry=self.registry,
        )
        self.storage_full = Gauge(
            "coserve_storage_full",
            "1 if writes failed for lack of space in the last 30 seconds, by store.",
            ["store"],
            registry=self.seen_by_all,
        )
        self.loop_failures = Counter(
            "coserve_loop_failures",
            "Turns of a background loop that ended in an unexpected error.",
            ["loop"],
            registry=self.registry,
        )
        self.usage_flush_failures = Counter(
            "coserve_usage_flush_failures",
            "Attempts to write usage to the database that failed and are repeated.",
            registry=self.registry,
        )

    def exposition(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return generate_latest(self.seen_by_all) + generate_latest(self.registry)

    def of_process(self, number: int) -> bytes:
        """What this process counts, with its label."""
        return generate_latest(OfProcess(self.registry, number))

    async def gathered(self) -> bytes:
        """All metrics, those of the other processes of this gateway too."""
        if self.siblings is None:
            return self.exposition()
        return generate_latest(self.seen_by_all) + await self.siblings.gathered()
