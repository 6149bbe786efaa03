"""Figures from records one can check by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lab.workload.harness import RunResult
from lab.workload.records import RequestRecord
from lab.workload.report import table, write_outputs
from lab.workload.summary import SystemRun, Targets, measured_targets, offline_rate, summarise


def record(name: str, online: bool, at_s: float, *tokens_s: float) -> RequestRecord:
    made = RequestRecord(name, online, 100, at_s, done=bool(tokens_s))
    made.token_times_s = list(tokens_s)
    return made


def run(system: str, delay_s: float, repeat: int = 0, **counters: Any) -> SystemRun:
    """Two online requests that wait ``delay_s``, then 3 tokens 0.1 s apart; one offline row."""
    online = [
        record(f"online-{i}", True, float(i), *(i + delay_s + 0.1 * k for k in range(3)))
        for i in range(2)
    ]
    offline = [record("offline-0", False, 0.0, 2.0, 3.0)]
    return SystemRun(system, repeat, RunResult(online, offline, 10.0), dict(counters))


def both(ttft_s: float, tbt_s: float) -> dict[int, Targets]:
    """The same targets in both repeats."""
    return dict.fromkeys(range(2), Targets(ttft_s, tbt_s))


def test_figures_of_one_system() -> None:
    reference = [run("online-only", 0.2)]
    found = summarise([run("x", 0.3)], reference, both(0.25, 0.1001), (1.0, 2.0))
    assert found["n"] == 2
    assert found["ttft_ms"]["p50"] == pytest.approx(300.0)
    assert found["tbt_ms"]["max"] == pytest.approx(100.0)
    assert found["ttft_ms"]["p99"] is None
    assert found["excess_ttft_ms"]["p90"] == pytest.approx(100.0)
    assert found["attainment"]["1.0"] == {"ttft": 0.0, "tbt": 1.0}
    assert found["attainment"]["2.0"] == {"ttft": 1.0, "tbt": 1.0}
    # 100 prompt tokens and 2 output tokens in 10 s
    assert found["offline_tokens_per_s"] == pytest.approx(10.2)
    assert len(found["repeats"]) == 1


def test_offline_tokens_are_counted_by_the_engine() -> None:
    """Stock: 900 prompt tokens logged, 200 of them online, 2 offline output tokens, 10 s."""
    stock = run("x", 0.3)
    stock.result = replace(stock.result, reading=900)
    assert offline_rate(stock) == pytest.approx((900 - 200 + 2) / 10)
    stock.result.offline[0].retractions = 1  # some of the 900 were computed again
    assert offline_rate(stock) == pytest.approx((100 + 2) / 10)
    ours = run("x", 0.3, steps=5)
    ours.result = replace(ours.result, reading=900)
    assert offline_rate(ours) == pytest.approx(90.0)


def test_repeats_are_pooled_and_paired_with_their_own_reference() -> None:
    reference = [run("online-only", 0.2, 0), run("online-only", 0.4, 1)]
    runs = [run("x", 0.3, 0), run("x", 0.5, 1)]
    found = summarise(runs, reference, both(1.0, 1.0), (1.0,))
    assert found["n"] == 4
    assert found["excess_ttft_ms"]["p50"] == pytest.approx(100.0)
    assert found["excess_ttft_ms"]["ci95"] == pytest.approx([100.0, 100.0])


def test_a_request_without_an_answer_counts_with_the_time_it_waited() -> None:
    silent = run("x", 0.3)
    silent.result.online[1].token_times_s = []
    silent.result.online[1].error = "not answered in time"
    silent.result.online[1].given_up_s = 70.0
    silent.result.online[1].done = False
    found = summarise([silent], [run("online-only", 0.2)], both(1.0, 1.0), (1.0,))
    assert found["ttft_ms"]["max"] == pytest.approx(69000.0)
    assert found["errors"] == {"not answered in time": 1}
    assert found["unfinished"] == 1


def test_a_request_given_up_at_once_has_missed_its_target() -> None:
    refused = run("x", 0.3)
    refused.result.online[1].token_times_s = []
    refused.result.online[1].given_up_s = 1.05
    found = summarise([refused], [run("online-only", 0.2)], both(1.0, 1.0), (1.0,))
    assert found["attainment"]["1.0"]["ttft"] == 0.5


def test_the_runtime_counts_its_own_preemptions() -> None:
    counted = run("x", 0.3, aborts=2, drops=3, retracts=4, recomputed_tokens=7)
    found = summarise([counted], [run("online-only", 0.2)], both(1.0, 1.0), (1.0,))
    assert (found["preemptions"], found["recomputed_tokens"]) == (9, 7)
    stock = run("y", 0.3)
    stock.result.offline[0].retractions = 2
    stock.result = replace(stock.result, reading=350)  # 200 and 100 are prompts' first
    found = summarise([stock], [run("online-only", 0.2)], both(1.0, 1.0), (1.0,))
    assert (found["preemptions"], found["recomputed_tokens"]) == (2, 50)


def test_what_the_runtime_says_about_itself() -> None:
    mine = run("x", 0.3, steps=100)
    mine.counters |= {
        "step_cpu_s": 50.0, "plan_cpu_s": 0.05, "safepoint_cpu_s": 0.25,
        "aborts": 1, "drops": 1, "flag_to_stop_s": [0.9, 0.1, 0.3],  # the first in the lead
        "step_times": {"errors": {"mixed": {"p50": 0.05}}, "recent": [["mixed", 10.0, 11.0]]},
    }  # fmt: skip
    [told] = summarise([mine], [run("online-only", 0.2)], both(1.0, 1.0), (1.0,))["runtime"]
    assert told["plan_cpu_us_per_step"] == pytest.approx(500.0)
    assert told["safepoint_cpu_share"] == pytest.approx(0.005)
    assert told["model_errors"] == {"mixed": {"p50": 0.05}}
    assert (told["stops"], told["flag_to_stop_ms_max"]) == (2, pytest.approx(300.0))


def test_targets_are_the_reference_percentiles() -> None:
    targets = measured_targets([run("online-only", 0.2), run("online-only", 0.4)])
    assert targets.ttft_s == pytest.approx(0.4)
    assert targets.tbt_s == pytest.approx(0.1)
    empty = SystemRun("online-only", 0, RunResult([], [], 1.0))
    with pytest.raises(ValueError, match="too few tokens"):
        measured_targets([empty])


def test_outputs_are_complete(tmp_path: Path) -> None:
    reference = run("online-only", 0.2)
    reference.result.offline.clear()
    mine = run("conserve-v2", 0.3)
    mine.result.online[1].given_up_s = 9.0  # a stream that was cut after its third token
    targets = both(0.25, 0.11)
    results: dict[str, Any] = {
        "systems": {
            r.system: summarise([r], [reference], targets, (1.0, 1.25)) for r in (reference, mine)
        },
        "environment": {"scale_factor": 2.0, "slo_ms": [{"ttft": 250.0, "tbt": 110.0}]},
    }
    write_outputs(results, [reference, mine], tmp_path)
    assert {p.name for p in tmp_path.iterdir()} == {
        "results.json", "table.txt", "requests.csv", "tokens.csv",
        "ttft.svg", "tbt.svg", "offline.svg", "steps.svg",
    }  # fmt: skip
    assert "conserve-v2" in (tmp_path / "ttft.svg").read_text()
    assert "stroke-dasharray" in (tmp_path / "ttft.svg").read_text()
    lines = (tmp_path / "requests.csv").read_text().splitlines()
    assert len(lines) == 1 + 2 + 3
    tokens = (tmp_path / "tokens.csv").read_text().splitlines()
    assert "conserve-v2,0,online-1,9.0000,7500.00" in tokens
    text = table(results)
    assert "arrivals stretched by 2.00" in text
    assert [line.split()[0] for line in text.splitlines()[1:3]] == ["online-only", "conserve-v2"]


def test_a_system_is_told_of_without_the_reference_where_targets_are_given(tmp_path: Path) -> None:
    mine = run("conserve-v2", 0.3)
    found = summarise([mine], [], both(0.25, 0.11), (1.0,))
    assert found["excess_ttft_ms"] is None
    assert found["attainment"]["1.0"] == {"ttft": 0.0, "tbt": 1.0}
    environment = {"scale_factor": 1.0, "slo_ms": [{"ttft": 250.0, "tbt": 110.0}]}
    write_outputs({"systems": {"conserve-v2": found}, "environment": environment}, [mine], tmp_path)
    assert "conserve-v2" in (tmp_path / "table.txt").read_text()
