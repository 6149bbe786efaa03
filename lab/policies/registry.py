"""Policies to compare with, by name, beside those that engines offer."""

from __future__ import annotations

from engine_adapter.scheduling.policies import registry
from engine_adapter.scheduling.policies.registry import Maker
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

_STOCK = (SglangPriority, SglangNoPreemption)
_BASELINES = (*_STOCK, Orca, Vllm, VllmSwap, FastGen, FastServe, MultiRes, RoundRobin, Xllm)
POLICIES: dict[str, Maker] = {**registry.POLICIES, **{policy.name: policy for policy in _BASELINES}}
NAMES = tuple(POLICIES)
# Need two pools of engines: the simulator has them, one engine is none.
TWO_POOLS: dict[str, Maker] = {DistServe.name: DistServe}
# Valid and senseless: for driving an engine through its corners, never for serving.
TEST_POLICIES: dict[str, Maker] = {RandomValid.name: RandomValid}
MAKERS: dict[str, Maker] = {**POLICIES, **TWO_POOLS, **TEST_POLICIES}
