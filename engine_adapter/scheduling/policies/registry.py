"""Policies by name: the same names in settings, command line, results and files."""

from __future__ import annotations

from collections.abc import Callable

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
from lab.policies.distserve import DistServe
from lab.policies.fastgen import FastGen
from lab.policies.fastserve import FastServe
from lab.policies.multires import MultiRes
from lab.policies.orca import Orca
from lab.policies.random_valid import RandomValid
from lab.policies.round_robin import RoundRobin
from lab.policies.sglang_priority import SglangNoPreemption, SglangPriority
from lab.policies.vllm import Vllm, VllmSwap
from lab.policies.xllm import Xllm

DEFAULT_POLICY = "conserve_v2"
# Runs while nothing is known about how long steps take.
UNPROFILED_POLICY = "sarathi_p"

# What coserve offers, then what papers compare with.
_OFFERED = (OnlineOnly, NonPreemptive, SarathiP, ConserveV1, ConserveV2)
_PAPERS = (Bros, EcoServe, EcoServeD, EcoServeSd, EcoServeSdo)
_STOCK = (SglangPriority, SglangNoPreemption)
_BASELINES = (*_STOCK, Orca, Vllm, VllmSwap, FastGen, FastServe, MultiRes, RoundRobin, Xllm)
Maker = Callable[[LatencyModel, PolicySettings | None], SchedulingPolicy]
POLICIES: dict[str, Maker] = {policy.name: policy for policy in (*_OFFERED, *_PAPERS, *_BASELINES)}
NAMES = tuple(POLICIES)
COMPARED = tuple(policy.name for policy in _OFFERED)
"""What a comparison runs unless told otherwise."""
# Need two pools of engines: the simulator has them, one engine is none.
TWO_POOLS: dict[str, Maker] = {DistServe.name: DistServe}
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
    for others in (TWO_POOLS, TEST_POLICIES):
        if name in others:
            return others[name](model, settings)
    known = ", ".join(sorted(POLICIES))
    raise ValueError(f"unknown policy {name!r}; choose one of {known}")
