"""The bound holds for every schedule and is reached by the best one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.coserve_bench.ceiling import CHUNKS, Ceiling, OfflineShape, ceiling
from engine_adapter.scheduling.latency import Coefficients, PolynomialModel, StepLoad
from lab.workload.harness import RunResult
from lab.workload.records import RequestRecord
from lab.workload.summary import SystemRun, Targets

SHAPE = OfflineShape(input_tokens=1024, output_tokens=64, slots=8, max_chunk_tokens=512)


def model(k_token: float, k_constant: float, k_request: float = 0.0) -> PolynomialModel:
    k = Coefficients(k_token, 0, 0, 0, k_request, k_constant)
    return PolynomialModel(k, k, k)


def reference(*spans: tuple[float, float], duration_s: float = 100.0) -> list[SystemRun]:
    """Online-only runs in which requests of no prompt were there from ... to ..."""
    records = [
        RequestRecord(f"r{i}", True, 1, start, start, [start, stop], done=True)
        for i, (start, stop) in enumerate(spans)
    ]
    return [SystemRun("online-only", 0, RunResult(records, [], duration_s))]


def bound(k: PolynomialModel, runs: list[SystemRun], tbt_s: float) -> Ceiling:
    return ceiling(k, runs, Targets(1.0, tbt_s), SHAPE, online_context=256)


def test_tokens_that_cost_the_same_everywhere() -> None:
    found = bound(model(0.01, 0.0), reference(), tbt_s=0.1)
    assert found.tokens_per_s == pytest.approx(100.0)
    assert found.online_share == 0.0


def test_nothing_fits_beside_online_requests() -> None:
    found = bound(model(0.01, 0.0), reference((0, 30), (20, 50)), tbt_s=0.015)
    assert found.online_share + found.prompt_share == pytest.approx(0.5)
    assert found.beside == 0.0
    assert found.tokens_per_s == pytest.approx(50.0)


def test_a_request_that_never_finished_is_there_to_the_end() -> None:
    runs = reference((80, 90))
    runs[0].result.online[0].done = False
    found = bound(model(0.01, 0.0), runs, tbt_s=0.015)
    assert found.online_share + found.prompt_share == pytest.approx(0.2)


@given(
    k_token=st.floats(1e-4, 1e-2),
    k_constant=st.floats(0.0, 0.2),
    k_request=st.floats(0.0, 0.05),
    tbt_s=st.floats(0.05, 1.0),
    busy_s=st.floats(0.0, 100.0),
    chunk=st.sampled_from([c for c in CHUNKS if 0 < c <= 512]),
    rows=st.integers(1, 8),
)
def test_no_schedule_of_two_kinds_of_step_beats_it(
    k_token: float, k_constant: float, k_request: float, tbt_s: float, busy_s: float, chunk: int,
    rows: int,
) -> None:  # fmt: skip
    k = model(k_token, k_constant, k_request)
    found = bound(k, reference((0, busy_s)), tbt_s)
    # Without online requests: prompts in chunks, decode rows together, in the rows' proportion.
    prompts, decode = StepLoad(), StepLoad()
    prompts.add_chunk(chunk, 512)
    for _ in range(rows):
        decode.add_decode(1056)
    row_s = 1024 / chunk * k.predict(prompts) + 64 / rows * k.predict(decode)
    alone_share = 1.0 - found.online_share - found.prompt_share
    assert alone_share * 1088 / row_s <= found.tokens_per_s * (1 + 1e-6) + 1e-9
