from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest

from engine_adapter.client.base import EngineFacts
from engine_adapter.client.pool import Member
from gateway.observability.runtime_metrics import FAMILIES, PREFIX, RuntimeMetrics
from tests.fakes.client import FakeEngineClient

URL = "http://e:1"
REPORT: dict[str, Any] = {
    "steps": 12,
    "online_tokens": 30,
    "offline_tokens": 90,
    "harvested_share": 0.75,
    "parked_requests": 3,
    "slo": {"ttft_s": 1.5, "tbt_s": 0.1},
    "attained": {"ttft": {"num": 4, "p50_s": 0.4, "p90_s": 1.2, "share_in_time": 0.98}},
    "step_times": {"errors": {"mixed": {"num_samples": 9, "mean": 0.05, "p50": 0.04, "p95": 0.1}}},
    "stops_by_layer": {"3": {"num": 2, "sum_s": 0.25}},
}


def member(report: object, *, up: bool = True) -> Member:
    facts = EngineFacts("m", 2048, raw={"coserve": report})
    return Member(FakeEngineClient(url=URL), facts, up=up)


def exported(*members: Member) -> dict[str, float]:
    registry, metrics = CollectorRegistry(), RuntimeMetrics()
    registry.register(metrics)
    metrics.read(members)
    text = generate_latest(registry).decode()
    return {name: float(value) for name, value in re.findall(r"^(coserve_\S+) (\S+)$", text, re.M)}


def test_a_report_becomes_metrics() -> None:
    engine = f'engine="{URL}"'
    assert exported(member(REPORT)) == {
        f"coserve_runtime_steps_total{{{engine}}}": 12,
        f'coserve_runtime_tokens_total{{{engine},request_class="online"}}': 30,
        f'coserve_runtime_tokens_total{{{engine},request_class="offline"}}': 90,
        f"coserve_runtime_harvested_share{{{engine}}}": 0.75,
        f"coserve_runtime_parked_requests{{{engine}}}": 3,
        f'coserve_runtime_slo_seconds{{{engine},of="ttft"}}': 1.5,
        f'coserve_runtime_slo_seconds{{{engine},of="tbt"}}': 0.1,
        f'coserve_runtime_attained_p90_seconds{{{engine},of="ttft"}}': 1.2,
        f'coserve_runtime_attained_share{{{engine},of="ttft"}}': 0.98,
        f'coserve_runtime_step_error{{{engine},kind="mixed",statistic="mean"}}': 0.05,
        f'coserve_runtime_step_error{{{engine},kind="mixed",statistic="p50"}}': 0.04,
        f'coserve_runtime_step_error{{{engine},kind="mixed",statistic="p95"}}': 0.1,
        f'coserve_runtime_stop_seconds_count{{{engine},layer="3"}}': 2,
        f'coserve_runtime_stop_seconds_sum{{{engine},layer="3"}}': 0.25,
    }


def test_an_engine_that_is_down_or_says_something_else_has_none() -> None:
    assert exported(member(REPORT, up=False)) == {}
    assert exported(Member(FakeEngineClient(url=URL), None, up=True)) == {}
    odd = {"steps": "many", "slo": 3, "stops_by_layer": [1], "step_times": {"errors": {"x": None}}}
    for report in (None, {}, odd):
        assert exported(member(report)) == {}


def test_every_metric_is_documented() -> None:
    page = Path("docs/metrics.md").read_text()
    names = [family.name for family in FAMILIES] + ["step_error", "stop_seconds"]
    assert len(names) == len(set(names))
    assert [name for name in names if f"`{PREFIX}{name}`" not in page] == []
