"""What each policy plans on two hundred snapshots: a change of one plan shows by its number."""

from __future__ import annotations

import json

import pytest

from lab.policies.registry import POLICIES, TEST_POLICIES, TWO_POOLS
from tests.fixtures.golden_snapshots import EVERY, NUM, OFFERED, digest, plans, snapshots
from tests.fixtures.oracles import Oracle

ALL = [*OFFERED, *sorted({*POLICIES, *TEST_POLICIES, *TWO_POOLS} - {*OFFERED})]
SHOWN = 3
"""Snapshots whose plans stand there whole."""


@pytest.mark.oracle
def test_plans_on_snapshots(oracle: Oracle) -> None:
    made = list(snapshots())
    lines = []
    for policy in ALL:
        every = 1 if policy in OFFERED else EVERY
        planned = {number: plans(policy, made[number]) for number in range(0, NUM, every)}
        lines.append(f"## {policy}")
        shown = [number for number, plan in planned.items() if plan["prefill"] or plan["decode"]]
        lines += [f"{number} {json.dumps(planned[number])}" for number in shown[:SHOWN]]
        found = [f"{number}:{digest(plan)}" for number, plan in planned.items()]
        lines += [" ".join(found[at : at + 10]) for at in range(0, len(found), 10)]
    oracle("plans.txt", "\n".join(lines))


def test_the_snapshots_make_the_offered_policies_differ() -> None:
    made = list(snapshots(60))
    planned = {name: [digest(plans(name, one)) for one in made] for name in OFFERED}
    assert len({tuple(found) for found in planned.values()}) == len(OFFERED)
    for name, found in planned.items():
        assert len(set(found)) > 20, name
