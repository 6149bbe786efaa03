"""Packed weights compute what SGLang's products compute, for any number of tokens."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from tests.engine.engine_scripts import LIMIT_S, run_script

pytestmark = pytest.mark.timeout(LIMIT_S)


@cache
def results() -> dict[str, Any]:
    return run_script("cpu_linear_cases.py")


def test_they_equal_sglangs_own_for_any_number_of_tokens() -> None:
    found = results()
    narrow = found["bfloat16"]  # not every processor has kernels for it
    assert found["packed"] == {
        "linear torch.float32": True,
        "linear torch.bfloat16": narrow,
        "head torch.float32 False": True,
        "head torch.float32 True": True,
        "head torch.bfloat16 False": narrow,
        "head torch.bfloat16 True": True,
    }
    assert len(found["worst"]) == 2 * (7 * 4 + 2 * 6)
    for name, difference in found["worst"].items():
        # The products are around 20: one step of bfloat16 there, where they are rounded to it.
        rounded = "bfloat16" in name and "True " not in name
        assert difference <= (0.125 if rounded else 1e-4), f"{name}: {difference}"


def test_a_token_has_the_same_bits_whatever_other_tokens_are_in_the_step() -> None:
    assert len(results()["shared"]) == (6 if results()["bfloat16"] else 3)
    assert set(results()["shared"].values()) == {0}, results()["shared"]
