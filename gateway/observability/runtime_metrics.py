"""Metrics of the co-serving runtime, from what each engine last said about itself.

The pool asks every engine every few seconds; a scrape asks none. An engine that does not answer
has no metrics here, rather than old ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    SummaryMetricFamily,
)
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from engine_adapter.client.base import EngineFacts
from engine_adapter.client.pool import Member
from engine_adapter.scheduling.distribution import EDGES_S
from gateway.observability.latency_metrics import buckets_of

PREFIX = "coserve_runtime_"


@dataclass(frozen=True)
class Series:
    """One number of the report.

    Attributes:
        path: Where it stands, keys joined by dots.
        labels: Labels beside `engine`.
    """

    path: str
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Family:
    """One metric: its name without the prefix, whether it only grows, its text and series."""

    name: str
    grows: bool
    text: str
    series: Sequence[Series]


def _one(name: str, text: str, path: str, *, grows: bool = True) -> Family:
    return Family(name, grows, text, [Series(path)])


def _by(name: str, text: str, label: str, paths: Mapping[str, str], *, grows: bool) -> Family:
    return Family(name, grows, text, [Series(p, {label: value}) for value, p in paths.items()])


FAMILIES: Sequence[Family] = (
    _one("steps", "Steps launched.", "steps"),
    _by(
        "tokens",
        "Tokens computed and kept; flex counts as offline.",
        "request_class",
        {"online": "online_tokens", "offline": "offline_tokens"},
        grows=True,
    ),
    _one("harvested_share", "Offline tokens among all.", "harvested_share", grows=False),
    _one("step_seconds", "Time in forward passes.", "step_s"),
    _one("step_cpu_seconds", "Thread CPU time of the same passes.", "step_cpu_s"),
    _one("predicted_step_seconds", "Predicted time of the same passes.", "predicted_s"),
    _one("plan_cpu_seconds", "CPU time of snapshot, plan, check and actuation.", "plan_cpu_s"),
    _one("safepoint_cpu_seconds", "CPU time of safepoints.", "safepoint_cpu_s"),
    _one("checkpoint_cpu_seconds", "CPU time of page copies to the host.", "checkpoint_cpu_s"),
    _one("restore_cpu_seconds", "CPU time of restores.", "restore_cpu_s"),
    _by(
        "stopped_steps",
        "Steps stopped between layers: aborted, or continued without their offline requests.",
        "kind",
        {"abort": "aborts", "drop": "drops"},
        grows=True,
    ),
    _one("flex_tokens", "Offline tokens of flex requests.", "flex_tokens"),
    _one("isolation_pauses", "Pauses of offline work for comparison.", "isolation.pauses.num"),
    _one(
        "isolation_paused_seconds",
        "Time spent in pauses of offline work.",
        "isolation.pauses.paused_s",
    ),
    _one(
        "undone_requests", "Requests whose work in a stopped step was discarded.", "undone_requests"
    ),
    _one(
        "parked_requests",
        "Requests that the newest step left out and whose KV stays.",
        "parked_requests",
        grows=False,
    ),
    _one("parked_request_steps", "Requests left out of a step, summed over steps.", "parks"),
    _one("retracted_requests", "Requests that gave up their slot and pages.", "retracts"),
    _one(
        "reaped_requests", "Aborted requests that ended without a forward pass.", "reaped_requests"
    ),
    _one("rejected_plans", "Plans that failed their check.", "rejected_plans"),
    _one("policy_errors", "Steps at which the policy raised an error.", "policy_errors"),
    _one(
        "misjudged_arrivals",
        "Online arrivals for which no step could be stopped.",
        "arrivals_misjudged",
    ),
    _one("checkpointed_pages", "Host pages written (16 tokens each).", "checkpointed_pages"),
    _one("restored_tokens", "Tokens whose KV came back from the host.", "restored_tokens"),
    _one("recomputed_tokens", "Offline tokens computed again.", "recomputed_tokens"),
    _one("recomputed_online_tokens", "Online tokens computed again.", "recomputed_online_tokens"),
    _by(
        "requests",
        "Engine requests by state.",
        "state",
        {
            "waiting": "waiting",
            "prefilling": "prefilling",
            "decoding": "decoding",
            "restoring": "restoring",
        },
        grows=False,
    ),
    _by("slots", "Request slots.", "state", {"held": "holding", "free": "free_slots"}, grows=False),
    _by(
        "free_pages",
        "Pages free, in the engine's own page size; host pages hold 16 tokens.",
        "memory",
        {"device": "free_pages", "evictable": "evictable_pages", "host": "host_free_pages"},
        grows=False,
    ),
    _one("flex_room", "Flex requests that may still be sent.", "flex_room", grows=False),
    _by(
        "slo_seconds",
        "Latency target.",
        "of",
        {"ttft": "slo.ttft_s", "tbt": "slo.tbt_s"},
        grows=False,
    ),
    _one(
        "tbt_budget_ratio",
        "Share of the TBT target that steps are filled to.",
        "tbt_share",
        grows=False,
    ),
    _one("slowdown_ratio", "Current step times over the profiled ones.", "slowdown", grows=False),
    _by(
        "attained_p90_seconds",
        "P90 of the newest thousand online latencies.",
        "of",
        {"ttft": "attained.ttft.p90_s", "tbt": "attained.tbt.p90_s"},
        grows=False,
    ),
    _by(
        "attained_share",
        "Share of the newest thousand that met its target.",
        "of",
        {"ttft": "attained.ttft.share_in_time", "tbt": "attained.tbt.share_in_time"},
        grows=False,
    ),
)
"""Everything that has a fixed place in the report, as `/metrics` calls it."""


class RuntimeMetrics(Collector):
    """What the engines said last, as metrics."""

    def __init__(self) -> None:
        self._facts: Mapping[str, EngineFacts] = {}

    def read(self, members: Sequence[Member]) -> None:
        """Take over what the pool knows of those that answer."""
        self._facts = {
            member.url: member.facts for member in members if member.up and member.facts is not None
        }

    def collect(self) -> Iterator[Metric]:
        """Families of metrics, as prometheus_client asks for them."""
        for family in FAMILIES:
            yield self._family(family)
        yield self._errors()
        yield self._stops()
        yield self._online_latency()

    def _family(self, family: Family) -> Metric:
        names = ["engine", *family.series[0].labels]
        kind = CounterMetricFamily if family.grows else GaugeMetricFamily
        metric = kind(PREFIX + family.name, family.text, labels=names)
        for url, facts in self._facts.items():
            for series in family.series:
                number = _number(facts.reported(series.path))
                if number is not None:
                    metric.add_metric([url, *series.labels.values()], number)
        return metric

    def _errors(self) -> Metric:
        metric = GaugeMetricFamily(
            PREFIX + "step_error",
            "Relative error of predicted step times over the newest thousand steps.",
            labels=["engine", "kind", "statistic"],
        )
        for url, facts in self._facts.items():
            for kind, error in _mapping(facts.reported("step_times.errors")).items():
                for statistic in ("mean", "p50", "p95"):
                    number = _number(_mapping(error).get(statistic))
                    if number is not None:
                        metric.add_metric([url, kind, statistic], number)
        return metric

    def _stops(self) -> Metric:
        metric = SummaryMetricFamily(
            PREFIX + "stop_seconds",
            "Time from the stop signal until the step stopped, by the layer at which it stopped.",
            labels=["engine", "layer"],
        )
        for url, facts in self._facts.items():
            for layer, stops in _mapping(facts.reported("stops_by_layer")).items():
                num, sum_s = (_number(_mapping(stops).get(name)) for name in ("num", "sum_s"))
                if num is not None and sum_s is not None:
                    metric.add_metric([url, layer], count_value=int(num), sum_value=sum_s)
        return metric

    def _online_latency(self) -> Metric:
        metric = HistogramMetricFamily(
            PREFIX + "online_latency_seconds",
            "Latency of online requests in the engine, beside offline work and without it.",
            labels=["engine", "of", "offline"],
        )
        for url, facts in self._facts.items():
            for of in ("ttft", "tbt"):
                for kind in ("beside", "apart"):
                    figures = facts.reported(f"isolation.{of}.{kind}")
                    if isinstance(figures, Sequence) and len(figures) == 4 + len(EDGES_S):
                        buckets = buckets_of(figures[3:])
                        metric.add_metric([url, of, kind], buckets=buckets, sum_value=figures[2])
        return metric


def _number(found: Any) -> float | None:
    return float(found) if isinstance(found, int | float) else None


def _mapping(found: Any) -> Mapping[str, Any]:
    return found if isinstance(found, Mapping) else {}
