"""Preemption and restore on the pinned SGLang: forced events, identical greedy output.

Every scenario runs on a real scheduler process (see ``coserving_scenarios.py``) with SGLang's
strict pool checks on, and raises unless its event fired. Here each is one test per way of running
the engine: overlap loop on and off, float32 and bfloat16, device pages of 1 and 16 tokens. Four
engines meet every pair of these.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from engine_adapter.host_cpu import matmul_dtype
from tests.engine.engine_scripts import LIMIT_S, run_script

pytestmark = pytest.mark.timeout(LIMIT_S)

ALL = (
    "abort_prefill",
    "abort_decode",
    "drop_chunk",
    "drop_decode",
    "restore",
    "shared_prefix",
    "recompute",
    "anew",
    "park",
    "cuts",
    "margins",
)
# Weights are packed where the processor multiplies bfloat16; elsewhere the rows of a step matter.
SAME_ROWS = ("abort_prefill", "abort_decode", "restore")
BFLOAT16 = ALL if matmul_dtype() == "bfloat16" else SAME_ROWS
ENGINES = {
    ("1", "float32", 16): ALL,
    ("0", "float32", 1): ALL,
    ("1", "bfloat16", 1): BFLOAT16,
    ("0", "bfloat16", 16): BFLOAT16,
}
SHORTER = ("1", "float32", 16)
"""What every run of the tests shows."""

RUNS = [
    pytest.param(*engine, name, marks=[] if engine == SHORTER else [pytest.mark.thorough])
    for engine, names in ENGINES.items()
    for name in names
]


@cache
def results(overlap: str, dtype: str, page_size: int) -> dict[str, dict[str, Any]]:
    """All scenarios of one engine, run once."""
    names = ENGINES[overlap, dtype, page_size]
    return run_script("coserving_scenarios.py", overlap, dtype, page_size, *names)


@pytest.mark.parametrize(("overlap", "dtype", "page_size", "scenario"), RUNS)
def test_output_is_identical_and_the_event_fired(
    overlap: str, dtype: str, page_size: int, scenario: str
) -> None:
    found = results(overlap, dtype, page_size)
    assert scenario in found, f"not reached; failed before: {list(found)[-1]}"
    assert found[scenario]["error"] is None, found[scenario]["error"]


def test_the_two_best_tokens_of_rows_that_are_computed_again_are_never_close() -> None:
    """In float32; rounding there is below a millionth."""
    assert results(*SHORTER)["margins"]["smallest"] > 1e-3
