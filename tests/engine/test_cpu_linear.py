"""Packed weights compute what SGLang's products compute, for any number of tokens."""

from __future__ import annotations

import pytest

from tests.engine.engine_scripts import LIMIT_S, run_script

pytestmark = pytest.mark.timeout(LIMIT_S)


def test_they_equal_sglangs_own_for_any_number_of_tokens() -> None:
    found = run_script("cpu_linear_cases.py")
    # Only what SGLang computes in float32 is packed; bfloat16 products stay with it.
    assert found["packed"] == {
        "linear torch.float32": True,
        "linear torch.bfloat16": False,
        "head torch.float32 False": True,
        "head torch.float32 True": True,
        "head torch.bfloat16 False": False,
        "head torch.bfloat16 True": True,
    }
    assert len(found["worst"]) == 2 * (7 * 4 + 2 * 6)
    for name, difference in found["worst"].items():
        assert difference < 1e-4, f"{name}: {difference}"
