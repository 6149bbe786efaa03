"""Policies by name: the same names in settings, command line, results and files.

An engine runs those that are named here. Baselines to compare with are research: they lie in
``lab/policies`` beside this package, in a checkout, and are found there by name.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping

from engine_adapter.scheduling.latency import LatencyModel
from engine_adapter.scheduling.policies.base import SchedulingPolicy
from engine_adapter.scheduling.policies.bros import Bros
from engine_adapter.scheduling.policies.conserve_v1 import ConserveV1
from engine_adapter.scheduling.policies.conserve_v2 import ConserveV2
from engine_adapter.scheduling.policies.ecoserve import EcoServe, EcoServeD, EcoServeSd, EcoServeSdo
from engine_adapter.scheduling.policies.non_preemptive import NonPreemptive
from engine_adapter.scheduling.policies.online_only import OnlineOnly
from engine_adapter.scheduling.policies.sarathi_p import SarathiP
from engine_adapter.scheduling.policies.settings import PolicySettings

LEVELLED = ConserveV2.name
"""The policy that has levels (`PolicySettings.level`)."""
# Runs while nothing is known about how long steps take.
UNPROFILED_POLICY = "sarathi_p"

_OFFERED = (OnlineOnly, NonPreemptive, SarathiP, ConserveV1, ConserveV2)
_PAPERS = (Bros, EcoServe, EcoServeD, EcoServeSd, EcoServeSdo)
Maker = Callable[[LatencyModel, PolicySettings | None], SchedulingPolicy]
POLICIES: dict[str, Maker] = {policy.name: policy for policy in (*_OFFERED, *_PAPERS)}
NAMES = tuple(POLICIES)
COMPARED = tuple(policy.name for policy in _OFFERED)
"""What a comparison runs unless told otherwise."""

_RESEARCH = "lab.policies.registry"


def find_policy(name: str) -> Maker | None:
    """The policy of that name: one of those here, else one of research, else None."""
    return POLICIES.get(name) or _research().get(name)


def expects_lengths(name: str) -> bool:
    """Whether that policy reads how long each answer is expected to be."""
    return bool(getattr(find_policy(name), "expects_lengths", False))


def create_policy(
    name: str, model: LatencyModel, settings: PolicySettings | None = None
) -> SchedulingPolicy:
    """Make the policy of that name.

    Raises:
        ValueError: If there is none; the message lists those there are.
    """
    maker = find_policy(name)
    if maker is None:
        known = ", ".join(sorted(POLICIES))
        raise ValueError(f"unknown policy {name!r}; choose one of {known}")
    return maker(model, settings)


def _research() -> Mapping[str, Maker]:
    try:
        module = importlib.import_module(_RESEARCH)
    except ModuleNotFoundError as missing:
        if missing.name is not None and _RESEARCH.startswith(missing.name):
            return {}  # an installed package has no research
        raise
    makers: Mapping[str, Maker] = module.MAKERS
    return makers
