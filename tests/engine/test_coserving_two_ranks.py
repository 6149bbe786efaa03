"""Tensor parallelism: two real ranks on one CPU take every decision together."""

from __future__ import annotations

import pytest

from engine_adapter.host_cpu import matmul_dtype
from tests.engine.engine_scripts import LIMIT_S, run_script

pytestmark = [pytest.mark.timeout(LIMIT_S), pytest.mark.thorough]


# In bfloat16 only where weights are packed: elsewhere the rows of a step change its rounding.
TYPES = sorted({"float32", matmul_dtype()})


@pytest.mark.parametrize("overlap", [1, 0])
@pytest.mark.parametrize("dtype", TYPES)
def test_ranks_stop_at_the_same_layers_and_outputs_are_identical(overlap: int, dtype: str) -> None:
    """And each row that comes back has the bytes it had, which the script compares."""
    found = run_script("coserving_two_ranks.py", overlap, dtype)
    assert set(found["layers"]) == {1, 2, 3, 4, 5}, "a stop at every safepoint"
    for event in ("aborts", "drops", "parks", "retracts", "restored_requests"):
        assert found[event] >= 3, f"{event}: {found}"
