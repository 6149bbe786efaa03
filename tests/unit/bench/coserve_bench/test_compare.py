from __future__ import annotations

from bench.coserve_bench.compare import GAUGES, difference
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
