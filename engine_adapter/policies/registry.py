"""Policies by name: the same names in settings, command line, results and files."""

from __future__ import annotations

from engine_adapter.latency.model import LatencyModel
from engine_adapter.policies.base import SchedulingPolicy
from engine_adapter.policies.conserve_v2 import ConserveV2
from engine_adapter.policies.settings import PolicySettings

DEFAULT_POLICY = "conserve_v2"

POLICIES = {policy.name: policy for policy in (ConserveV2,)}


def create_policy(
    name: str, model: LatencyModel, settings: PolicySettings | None = None
) -> SchedulingPolicy:
    """Make the policy of that name.

    Raises:
        ValueError: If there is none; the message lists those there are.
    """
    policy = POLICIES.get(name)
    if policy is None:
        known = ", ".join(sorted(POLICIES))
        raise ValueError(f"unknown policy {name!r}; choose one of {known}")
    return policy(model, settings)
