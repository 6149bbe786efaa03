from __future__ import annotations

import pytest

from engine_adapter.scheduling.latency import PolynomialModel
from engine_adapter.scheduling.policies.registry import (
    COMPARED,
    UNPROFILED_POLICY,
    create_policy,
)
from engine_adapter.scheduling.policies.settings import DEFAULT_POLICY
from lab.policies.registry import POLICIES, TEST_POLICIES


def test_the_names_are_those_of_the_results(model: PolynomialModel) -> None:
    offered = ["online_only", "non_preemptive", "sarathi_p", "conserve_v1", "conserve_v2"]
    assert list(COMPARED) == offered
    assert list(POLICIES)[:5] == offered
    assert all(name == create_policy(name, model).name for name in POLICIES)
    assert DEFAULT_POLICY in POLICIES
    assert UNPROFILED_POLICY in POLICIES


def test_an_unknown_policy_is_refused_with_the_choices(model: PolynomialModel) -> None:
    with pytest.raises(
        ValueError, match=r"unknown policy 'fastest'; choose one of .*conserve_v1, "
    ):
        create_policy("fastest", model)


def test_test_policies_are_not_on_offer(model: PolynomialModel) -> None:
    assert not set(TEST_POLICIES) & set(POLICIES)
    assert create_policy("random_valid", model).name == "random_valid"


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_every_policy_cites_its_source(name: str) -> None:
    import sys

    doc = sys.modules[POLICIES[name].__module__].__doc__
    assert doc is not None
    assert "section" in doc or "Algorithm" in doc
