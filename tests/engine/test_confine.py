"""An exception that one request causes ends that request; its neighbours keep their tokens."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from tests.engine.engine_scripts import LIMIT_S, run_script

pytestmark = pytest.mark.timeout(LIMIT_S)

SCENARIOS = (
    "in_the_first_chunk",
    "in_a_decode",
    "between_layers",
    "in_sampling",
    "in_sampling_parameters",
    "when_its_chunk_is_taken",
    "when_it_comes",
    "in_its_grammar",
    "nobody_alone",
)
ENGINES = [
    pytest.param("1", 16),
    pytest.param("0", 1, marks=pytest.mark.thorough),
]


@cache
def results(overlap: str, page_size: int) -> dict[str, Any]:
    """All scenarios of one engine, run once."""
    return run_script("coserving_confine.py", overlap, page_size)


@pytest.mark.parametrize(("overlap", "page_size"), ENGINES)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_only_the_request_that_raises_ends(overlap: str, page_size: int, scenario: str) -> None:
    found = results(overlap, page_size)
    assert scenario in found, f"not reached; failed before: {list(found)[-1]}"
    assert found[scenario]["error"] is None, found[scenario]["error"]
