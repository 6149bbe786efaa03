"""The order of runs, whose targets count where, and what a run that fails leaves."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from bench.coserve_bench.compare import GAUGES, Comparison, Overloaded, difference
from bench.coserve_bench.engine_run import EngineFailed
from bench.coserve_bench.options import parse_options
from bench.coserve_bench.systems import System
from gateway.observability.runtime_metrics import FAMILIES
from lab.workload.harness import Load, RunResult
from lab.workload.records import RequestRecord
from lab.workload.summary import SystemRun


class WithoutEngines(Comparison):
    """Answers every request after the wait that is given for a system, by repeat."""

    waits_s: dict[str, Sequence[float]]
    fails: frozenset[tuple[str, int]] = frozenset()

    async def _run(self, system: System, repeat: int, load: Load) -> SystemRun:
        self.asked = [*getattr(self, "asked", []), (system.name, repeat, self._env(system, repeat))]
        if (system.name, repeat) in self.fails:
            raise EngineFailed("ended")
        waits = self.waits_s.get(system.name, (0.1,))
        wait_s = waits[max(0, repeat) % len(waits)]
        online = [
            RequestRecord(f"online-{i}", True, r.input_tokens, r.arrival_s, r.arrival_s)
            for i, r in enumerate(load.online)
        ]
        for record in online:
            if wait_s < 60.0:
                record.token_times_s = [record.scheduled_s + wait_s * k for k in (1, 2)]
            record.done = wait_s < 60.0
        return SystemRun(system.name, repeat, RunResult(online, [], load.duration_s))


def comparison(tmp_path: Path, *argv: str) -> WithoutEngines:
    (tmp_path / "config.json").write_text(json.dumps({"vocab_size": 1000}))
    common = ["--model-dir", str(tmp_path), "--out", str(tmp_path / "out"), "--scale", "1"]
    found = WithoutEngines(parse_options([*common, *argv]))
    found.waits_s = {}
    return found


async def test_each_repeat_has_the_targets_of_its_own_online_only(tmp_path: Path) -> None:
    mine = comparison(tmp_path, "--systems", "online-only,conserve-v2", "--repeats", "2")
    mine.waits_s = {"online-only": (0.1, 0.4), "conserve-v2": (0.2, 0.2)}
    results = await mine.run()
    assert [(name, repeat) for name, repeat, _ in mine.asked] == [
        ("online-only", 0), ("conserve-v2", 0), ("online-only", 1), ("conserve-v2", 1),
    ]  # fmt: skip
    given = [env.get("COSERVE_TTFT_MS") for name, _, env in mine.asked if name == "conserve-v2"]
    assert given == ["100.000", "400.000"]
    assert [slo["ttft"] for slo in results["environment"]["slo_ms"]] == pytest.approx([100, 400])
    found = results["systems"]["conserve-v2"]
    counts = [repeat["n"] for repeat in found["repeats"]]
    kept = found["attainment"]["1.0"]["ttft"]
    assert kept == pytest.approx(counts[1] / sum(counts))  # the second repeat's are all in time
    assert (tmp_path / "out" / "table.txt").read_text().count("\n") >= 4


async def test_targets_that_are_given_hold_in_every_repeat(tmp_path: Path) -> None:
    mine = comparison(tmp_path, "--systems", "online-only,conserve-v2", "--ttft-ms", "250")
    mine.waits_s = {"online-only": (0.1, 0.4)}
    results = await mine.run()
    assert [slo["ttft"] for slo in results["environment"]["slo_ms"]] == [250.0, 250.0]
    assert [slo["tbt"] for slo in results["environment"]["slo_ms"]] == pytest.approx([100, 400])


async def test_stock_priority_runs_at_the_best_setting_that_ran(tmp_path: Path) -> None:
    mine = comparison(tmp_path, "--systems", "online-only,sglang-priority", "--repeats", "1")
    mine.waits_s = {
        f"sglang-priority@{c}{m}": (1.0,) for c in (128, 256, 512) for m in ("", "+mixed")
    }
    mine.waits_s["sglang-priority@256"] = (0.5,)
    mine.waits_s["sglang-priority@512"] = (0.2,)
    mine.fails = frozenset({("sglang-priority@512", 0)})
    results = await mine.run()
    tuning = results["environment"]["sglang_priority_tuning"]
    assert tuning["chosen"] == "sglang-priority@256"
    assert len(tuning["settings"]) == 5
    assert list(results["systems"]) == ["online-only", "sglang-priority"]


async def test_a_system_that_fails_leaves_the_others(tmp_path: Path) -> None:
    mine = comparison(tmp_path, "--systems", "online-only,conserve-v1,conserve-v2")
    mine.fails = frozenset({("conserve-v1", 0)})
    results = await mine.run()
    assert {name: len(s["repeats"]) for name, s in results["systems"].items()} == {
        "online-only": 2, "conserve-v2": 2, "conserve-v1": 1,
    }  # fmt: skip
    assert results["environment"]["failed"] == ["conserve-v1"]


@pytest.mark.parametrize("waits", [(0.1, 90.0), (90.0,)])
async def test_online_requests_that_are_too_many_end_it(
    tmp_path: Path, waits: tuple[float, ...]
) -> None:
    mine = comparison(tmp_path, "--systems", "online-only")
    mine.waits_s = {"online-only": waits}
    with pytest.raises(Overloaded, match="larger --scale"):
        await mine.run()


async def test_the_reference_comes_first(tmp_path: Path) -> None:
    mine = comparison(tmp_path, "--systems", "conserve-v2,online-only")
    with pytest.raises(ValueError, match="put online-only first"):
        await mine.run()


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
