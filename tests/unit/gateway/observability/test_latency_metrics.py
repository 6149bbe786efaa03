"""Latencies of streams, counted by hand and told as histograms."""

from __future__ import annotations

import itertools

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from engine_adapter.client.base import EngineFacts
from engine_adapter.scheduling.distribution import EDGES_S
from gateway.observability.latency_metrics import LatencyMetrics, targets_of


def samples(metrics: LatencyMetrics) -> dict[str, float]:
    registry = CollectorRegistry()
    registry.register(metrics)
    return {
        sample.name + "".join(f":{value}" for value in sample.labels.values()): sample.value
        for family in text_string_to_metric_families(generate_latest(registry).decode())
        for sample in family.samples
    }


def test_edges_rise_by_a_quarter_and_hold_usual_targets() -> None:
    ratios = [after / before for before, after in itertools.pairwise(EDGES_S)]
    assert all(1.2 < ratio < 1.3 for ratio in ratios)
    assert {0.05, 0.1, 0.2, 0.25, 0.5, 1.0, 2.0, 5.0} <= {*EDGES_S}


def test_a_latency_is_in_its_bucket_and_judged_by_its_target() -> None:
    metrics = LatencyMetrics()
    online = metrics.of("m", "online")
    for seconds in (0.1, 0.1001, 100.0):
        online.tbt.add(seconds, 0.1)
    online.ttft.add(0.5, None)
    found = samples(metrics)
    assert found["coserve_tbt_seconds_bucket:0.08:m:online"] == 0
    assert found["coserve_tbt_seconds_bucket:0.1:m:online"] == 1, "an edge belongs to its bucket"
    assert found["coserve_tbt_seconds_bucket:0.125:m:online"] == 2
    assert found["coserve_tbt_seconds_bucket:63.0:m:online"] == 2
    assert found["coserve_tbt_seconds_bucket:+Inf:m:online"] == 3
    assert found["coserve_tbt_seconds_count:m:online"] == 3
    assert found["coserve_tbt_seconds_sum:m:online"] == pytest.approx(100.2001)
    assert found["coserve_target_met_total:m:tbt"] == 1
    assert found["coserve_target_missed_total:m:tbt"] == 2
    assert found["coserve_target_met_total:m:ttft"] == 0
    assert found["coserve_ttft_seconds_count:m:online"] == 1


def test_flex_streams_are_not_judged() -> None:
    metrics = LatencyMetrics()
    metrics.of("m", "flex").ttft.add(9.0, 1.0)
    found = samples(metrics)
    assert found["coserve_ttft_seconds_count:m:flex"] == 1
    assert not [name for name in found if name.startswith("coserve_target")]


def test_targets_are_the_engines() -> None:
    raw = {"coserve": {"slo": {"ttft_s": 1.5, "tbt_s": 0.1}}}
    assert targets_of(EngineFacts("m", 2048, raw=raw)) == (1.5, 0.1)
    assert targets_of(EngineFacts("m", 2048)) == (None, None)
    assert targets_of(None) == (None, None)
