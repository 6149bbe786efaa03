"""Plans are what they were, step by step: code may move, decisions may not without a word."""

from __future__ import annotations

import json

import pytest

from tests.fixtures.golden_plans import GOLDEN, LOADS, POLICIES, record


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("load", LOADS)
def test_plans_are_what_they_were(load: str, policy: str) -> None:
    """A change meant to change plans writes them anew: python -m tests.fixtures.golden_plans."""
    golden = json.loads(GOLDEN.read_text())[load][policy]
    assert record(load, policy) == golden


def test_the_loads_make_policies_decide() -> None:
    """A trace in which nothing is parked, stopped, retracted or restored would freeze nothing."""
    golden = json.loads(GOLDEN.read_text())
    for counter in ("stops", "retracts", "parks", "restored_tokens"):
        assert any(load["conserve_v1"]["counters"][counter] for load in golden.values()), counter
    for load in golden.values():
        assert len({load[policy]["digest"] for policy in POLICIES}) == len(POLICIES)
