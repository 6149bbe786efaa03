"""Policies by name: the same names in settings, command line, results and files."""

from __future__ import annotations

from engine_adapter.latency.model import LatencyModel
from engine_adapter.policies.base import SchedulingPolicy
from engine_adapter.policies.conserve_v1 import ConserveV1
from engine_adapter.policies.conserve_v2 import ConserveV2
from engine_adapter.policies.non_preemptive import NonPreemptive
from engine_adapter.policies.online_only import OnlineOnly
from engine_adapter.policies.random_valid import RandomValid
from engine_adapter.policies.sarathi_p import SarathiP
from engine_adapter.policies.settings import PolicySettings

DEFAULT_POLICY = "conserve_v2"
# Runs while nothing is known about how long steps take.
UNPROFILED_POLICY = "sarathi_p"

POLICIES = {
    policy.name: policy for policy in (OnlineOnly, NonPreemptive, SarathiP, ConserveV1, ConserveV2)
}
NAMES = tuple(POLICIES)
# Valid and senseless: for driving an engine through its corners, never for serving.
TEST_POLICIES = {RandomValid.name: RandomValid}


def create_policy(
    name: str, model: LatencyModel, settings: PolicySettings | None = None
) -> SchedulingPolicy:
    """Make the policy of that name.

    Raises:
        ValueError: If there is none; the message lists those there are.
    """
    if name in POLICIES:
        return POLICIES[name](model, settings)
    if name in TEST_POLICIES:
        return TEST_POLICIES[name](model, settings)
    known = ", ".join(sorted(POLICIES))
    raise ValueError(f"unknown policy {name!r}; choose one of {known}")
