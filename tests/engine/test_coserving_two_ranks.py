"""Tensor parallelism: two real ranks on one CPU take every decision together."""

from __future__ import annotations

import pytest

from tests.engine.engine_scripts import LIMIT_S, run_script

pytestmark = pytest.mark.timeout(LIMIT_S)


@pytest.mark.parametrize("overlap", [1, 0])
def test_ranks_stop_at_the_same_layers_and_outputs_are_identical(overlap: int) -> None:
    found = run_script("coserving_two_ranks.py", overlap)
    assert set(found["layers"]) == {1, 2, 3, 4, 5}, "a stop at every safepoint"
    for event in ("aborts", "drops", "retracts", "restored_rows"):
        assert found[event] >= 3, f"{event}: {found}"
