from __future__ import annotations

import pytest

from bench.coserve_bench.capacity import (
    MIN_PROBE,
    answered_per_s,
    is_overloaded,
    probe_requests,
)
from lab.workload.harness import RunResult
from lab.workload.records import RequestRecord
from lab.workload.summary import SystemRun
from lab.workload.traces import TraceRequest


def test_a_probe_has_the_work_of_the_trace_and_no_straggler() -> None:
    online = [TraceRequest(float(i), 100 + i, 10) for i in range(MIN_PROBE - 1)]
    online += [TraceRequest(30.0, 50, 10 + 4 * MIN_PROBE), TraceRequest(31.0, 7, 7)]
    probe = probe_requests(online, slots=8)
    assert [r.input_tokens for r in probe] == [r.input_tokens for r in online[:MIN_PROBE]]
    assert {(r.arrival_s, r.output_tokens) for r in probe} == {(0.0, 14)}


def test_a_probe_fills_the_slots() -> None:
    online = [TraceRequest(float(i), 100, 10) for i in range(100)]
    assert len(probe_requests(online, slots=64)) == 64


def test_capacity_counts_what_was_answered() -> None:
    probe = [
        RequestRecord("a", True, 10, 0.0, token_times_s=[1.0, 2.0]),
        RequestRecord("b", True, 10, 0.0, token_times_s=[3.0, 4.0]),
        RequestRecord("c", True, 10, 0.0, error="too long"),
    ]
    assert answered_per_s(probe) == pytest.approx(0.5)


def test_an_engine_that_refuses_the_probe_is_quoted() -> None:
    with pytest.raises(ValueError, match="answered none of the requests that probe it: too long"):
        answered_per_s([RequestRecord("c", True, 10, 0.0, error="too long")])


def run_of(waits_s: list[float]) -> SystemRun:
    """A request every second of half a minute, each with its wait."""
    online = [
        RequestRecord(f"r{i}", True, 10, float(i), token_times_s=[i + wait_s])
        for i, wait_s in enumerate(waits_s)
    ]
    return SystemRun("online-only", 0, RunResult(online, [], float(len(waits_s))))


def test_a_queue_that_grows_is_overload() -> None:
    assert is_overloaded(run_of([0.5 * i for i in range(30)]))
    assert not is_overloaded(run_of([0.5] * 30))


def test_long_prompts_at_the_end_are_none() -> None:
    assert not is_overloaded(run_of([0.3] * 20 + [2.0] * 8 + [1.5, 0.5]))


def test_requests_without_an_answer_are() -> None:
    run = run_of([0.5] * 30)
    for record in run.result.online[3:7]:
        record.token_times_s = []
    assert is_overloaded(run)
