"""The policies of other papers, and SGLang's own, under SGLang's strict pool checks.

The same load as the coin throws, planned by BROS, by EcoServe and as SGLang would; every answer is
computed again undisturbed and compared token by token.
"""

from __future__ import annotations

import pytest

from engine_adapter.host_cpu import matmul_dtype
from tests.engine.engine_scripts import LIMIT_S, run_script

pytestmark = [pytest.mark.timeout(LIMIT_S), pytest.mark.thorough]


@pytest.mark.parametrize(
    ("policy", "overlap", "page_size", "dtype"),
    [
        ("bros", 1, 1, "float32"),
        ("bros", 0, 16, matmul_dtype()),
        ("ecoserve", 1, 1, matmul_dtype()),
        ("ecoserve", 0, 16, "float32"),
        ("sglang_priority", 1, 1, "float32"),
    ],
)
def test_nothing_leaks_and_no_output_changes(
    policy: str, overlap: int, page_size: int, dtype: str
) -> None:
    found = run_script("coserving_random_run.py", 500, 21, overlap, page_size, dtype, policy)
    assert found["steps"] >= 500
    assert found["rejected_plans"] == 0
    assert found["compared"] > 20
    if policy == "bros":  # the others set memory aside for answers, so that nobody gives way
        assert found["retracts"] > 5, found
        assert found["restored_requests"] > 0, found
