"""What callers of streams get, as the gateway hands it out: TTFT and TBT per model and class.

A first token counts from the request's arrival to the first chunk; a gap from one read of the
engine that brought text to the next one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from engine_adapter.client.base import EngineFacts
from engine_adapter.scheduling.distribution import EDGES_S, Distribution


@dataclass(slots=True)
class StreamLatency:
    """What the streams of one model and class got; one for all of them."""

    ttft: Distribution = field(default_factory=Distribution)
    tbt: Distribution = field(default_factory=Distribution)


class LatencyMetrics(Collector):
    """All of it, as metrics; flex streams have no target, and are not judged."""

    def __init__(self) -> None:
        self._streams: dict[tuple[str, str], StreamLatency] = {}

    @property
    def streams(self) -> Mapping[tuple[str, str], StreamLatency]:
        """By model and class."""
        return self._streams

    def of(self, model: str, request_class: str) -> StreamLatency:
        """Where a stream notes what it gets."""
        known = self._streams.get((model, request_class))
        if known is None:
            known = self._streams[model, request_class] = StreamLatency()
        return known

    def collect(self) -> Iterator[Metric]:
        """Families of metrics, as prometheus_client asks for them."""
        labels = ["model", "request_class"]
        ttft = HistogramMetricFamily(
            "coserve_ttft_seconds",
            "Time from the arrival of a streamed request to its first chunk.",
            labels=labels,
        )
        tbt = HistogramMetricFamily(
            "coserve_tbt_seconds",
            "Time between two reads of a stream that brought text.",
            labels=labels,
        )
        met = CounterMetricFamily(
            "coserve_target_met", "Latencies within their target.", labels=["model", "of"]
        )
        missed = CounterMetricFamily(
            "coserve_target_missed", "Latencies later than their target.", labels=["model", "of"]
        )
        for (model, word), stream in self._streams.items():
            for family, of, one in ((ttft, "ttft", stream.ttft), (tbt, "tbt", stream.tbt)):
                buckets = buckets_of(one.counts)
                family.add_metric([model, word], buckets=buckets, sum_value=one.sum_s)
                if word == "online":
                    met.add_metric([model, of], one.num_met)
                    missed.add_metric([model, of], one.num_missed)
        yield from (ttft, tbt, met, missed)


def buckets_of(counts: Sequence[float]) -> list[tuple[str, float]]:
    """Counts of a distribution as Prometheus has them: cumulative."""
    buckets, num = [], 0.0
    for edge, count in zip((*map(str, EDGES_S), "+Inf"), counts, strict=True):
        num += count
        buckets.append((edge, num))
    return buckets


def targets_of(facts: EngineFacts | None) -> tuple[float | None, float | None]:
    """The targets of TTFT and TBT that hold at an engine; none where it says none."""
    if facts is None:
        return None, None
    if facts.targets_s is not None:
        return facts.targets_s
    ttft_s, tbt_s = facts.reported("slo.ttft_s"), facts.reported("slo.tbt_s")
    return (
        float(ttft_s) if isinstance(ttft_s, int | float) else None,
        float(tbt_s) if isinstance(tbt_s, int | float) else None,
    )
