"""Plans are what they were, step by step: code may move, decisions may not without a word."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.fixtures.golden_plans import LOADS, POLICIES, record
from tests.fixtures.oracles import Oracle


@pytest.fixture(scope="module")
def golden() -> dict[str, dict[str, Any]]:
    """What each policy does with each load."""
    return {load: {policy: record(load, policy) for policy in POLICIES} for load in LOADS}


@pytest.mark.oracle
def test_plans_are_what_they_were(golden: dict[str, dict[str, Any]], oracle: Oracle) -> None:
    oracle("golden_plans.json", json.dumps(golden, indent=1, sort_keys=True))


def test_the_loads_make_policies_decide(golden: dict[str, dict[str, Any]]) -> None:
    """A trace in which nothing is parked, stopped, retracted or restored would freeze nothing."""
    for counter in ("stops", "retracts", "parks", "restored_tokens"):
        assert any(load["conserve_v1"]["counters"][counter] for load in golden.values()), counter
    for load in golden.values():
        assert len({load[policy]["digest"] for policy in POLICIES}) == len(POLICIES)
