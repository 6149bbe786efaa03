"""The CPU attention computes what SGLang's computes, in any mix of prompts and decode rows."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from tests.engine.engine_scripts import LIMIT_S, run_script

pytestmark = pytest.mark.timeout(LIMIT_S)


@cache
def results() -> dict[str, Any]:
    return run_script("cpu_attention_cases.py")


def test_it_equals_sglangs_own_in_every_mix_of_rows() -> None:
    found = results()
    assert found["moved"] > 0.01, "a longer context changes the answer, or the case proves nothing"
    assert len(found["worst"]) == 26
    for name, difference in found["worst"].items():
        # bfloat16: one unit in the last place of values around 1.
        assert difference < (0.02 if "bfloat16" in name else 1e-5), f"{name}: {difference}"


def test_a_token_has_the_same_bits_wherever_its_prompt_is_cut_and_whatever_runs_along() -> None:
    assert len(results()["cuts"]) == 8
    assert set(results()["cuts"].values()) == {0}, results()["cuts"]
