"""Stops, drops, retracts and restores on tiny models of other forms: greedy output is the same."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from coserve.setup.engine_env import chosen_sglang
from tests.engine.engine_scripts import LIMIT_S, ROOT, run_script
from tests.engine.families import FAMILIES

pytestmark = pytest.mark.timeout(LIMIT_S)

SGLANG = chosen_sglang(ROOT)
RUNS = [
    pytest.param(family, name, marks=[] if FAMILIES[family].quick else [pytest.mark.thorough])
    for family, told in FAMILIES.items()
    for name in ("level", *told.scenarios_on(SGLANG))
]


@cache
def results(family: str) -> dict[str, dict[str, Any]]:
    """All scenarios of one family, run once."""
    return run_script("coserving_families.py", family, *FAMILIES[family].scenarios_on(SGLANG))


@pytest.mark.parametrize(("family", "scenario"), RUNS)
def test_output_is_identical_and_the_event_fired(family: str, scenario: str) -> None:
    found = results(family)
    assert scenario in found, f"not reached; failed before: {list(found)[-1]}: {found}"
    assert found[scenario]["error"] is None, found[scenario]["error"]
    if scenario == "level":
        assert found[scenario]["coserving_level"] == FAMILIES[family].level_on(SGLANG)
