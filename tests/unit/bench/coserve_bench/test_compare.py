from __future__ import annotations

from bench.coserve_bench.compare import GAUGES, PROBE_REQUESTS, difference, probe_requests
from engine_adapter.workload.traces import TraceRequest
from gateway.observability.runtime_metrics import FAMILIES


def test_totals_become_what_happened_in_between() -> None:
    before = {"steps": 10, "step_s": 1.5, "free_slots": 4, "policy": "x", "new": None}
    after = {"steps": 25, "step_s": 2.0, "free_slots": 3, "policy": "x", "new": 7, "ok": True}
    assert difference(before, after) == {
        "steps": 15, "step_s": 0.5, "free_slots": 3, "policy": "x", "new": 7, "ok": True,
    }  # fmt: skip


def test_what_the_metrics_call_a_gauge_is_no_total_here() -> None:
    for family in FAMILIES:
        for series in family.series:
            if "." not in series.path:
                assert (series.path in GAUGES) is not family.grows, series.path


def test_a_probe_has_the_work_of_the_trace_and_no_straggler() -> None:
    online = [TraceRequest(float(i), 100 + i, 10) for i in range(PROBE_REQUESTS - 1)]
    online += [TraceRequest(30.0, 50, 10 + 4 * PROBE_REQUESTS), TraceRequest(31.0, 7, 7)]
    probe = probe_requests(online)
    assert [r.input_tokens for r in probe] == [r.input_tokens for r in online[:PROBE_REQUESTS]]
    assert {(r.arrival_s, r.output_tokens) for r in probe} == {(0.0, 14)}
