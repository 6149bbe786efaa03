"""2,000 steps of coin throws on the real scheduler under SGLang's strict pool checks.

Everything that was not aborted is then run again undisturbed and compared token by token.
"""

from __future__ import annotations

import pytest

from engine_adapter.host_cpu import matmul_dtype
from tests.engine.engine_scripts import LIMIT_S, run_script

pytestmark = [pytest.mark.timeout(LIMIT_S), pytest.mark.thorough]


@pytest.mark.parametrize(
    ("seed", "overlap", "page_size", "dtype"), [(11, 1, 1, "float32"), (12, 0, 16, matmul_dtype())]
)
def test_nothing_leaks_and_no_output_changes(
    seed: int, overlap: int, page_size: int, dtype: str
) -> None:
    found = run_script("coserving_random_run.py", 2000, seed, overlap, page_size, dtype)
    for event in ("aborts", "drops", "parks", "retracts", "restored_requests", "recomputed_tokens"):
        assert found[event] > 5, f"{event} did not happen: {found}"
    assert found["steps"] >= 2000
    assert found["rejected_plans"] == 0
    assert found["compared"] > 100
