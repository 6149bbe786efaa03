"""Taking requests in runs decides what taking them one by one decides."""

from __future__ import annotations

import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine_adapter.scheduling.builder import (
    ONLINE,
    PlanBuilder,
    requests_that_fit,
    requests_with_pages,
    with_requests,
)
from engine_adapter.scheduling.driver import Driver
from engine_adapter.scheduling.latency import Coefficients, PolynomialModel, StepLoad
from engine_adapter.scheduling.plan import StepPlan
from engine_adapter.scheduling.policies.base import PolicyBase, SchedulingPolicy
from engine_adapter.scheduling.policies.registry import create_policy
from engine_adapter.scheduling.request import Request, RequestClass
from engine_adapter.scheduling.snapshot import Column, DecodeReady, EngineLimits, Snapshot
from engine_adapter.scheduling.targets import Slo
from lab.policies.registry import POLICIES
from lab.simulator.engine import MemoryEngine
from lab.simulator.shape import EngineShape
from lab.simulator.times import ProfiledTimes

K = Coefficients(4e-4, 0.0, 1e-5, 1e-7, 1e-4, 0.05)
MODEL = PolynomialModel(Coefficients(4e-4, 0.0, 1e-5, 0.0, 0.0, 0.05), K, K, (1, 2, 4, 8))

Spec = tuple[RequestClass, int, int, float, float, bool]
"""Class, prompt, output, arrival, deadline, whether it can mix."""


class OneByOne(PlanBuilder):
    """The rules as they read, request after request."""

    def decode_run(self, ready: DecodeReady, budget_s: float) -> int:
        for num_taken, request in enumerate(ready.requests):
            if not self._take_one(request, budget_s):
                return num_taken
        return len(ready)

    def _take_one(self, request: Request, budget_s: float) -> bool:
        mixes = self.snapshot.limits.can_mix and request.can_mix and not self.has_unmixable
        if self.requests_left <= 0 or (self._prefill and not mixes):
            return False
        pages = self.decode_pages(request)
        if pages > self.pages_left:
            return False
        if budget_s != math.inf:
            predicted_s = self.model.predict_with_decode(self.load, request.computed_tokens)
            if predicted_s > self.bounded_s(budget_s):
                return False
        self.pages_left -= max(0, pages)
        self.load.add_decode(request.computed_tokens)
        self._decode.append(request.rid)
        self.requests_left -= 1
        self.taken.add(request.rid)
        self.has_unmixable = self.has_unmixable or not request.can_mix
        if request.request_class is ONLINE:
            self.num_online += 1
        else:
            self.num_offline += 1
        return True


def one_by_one(name: str) -> SchedulingPolicy:
    """The policy on the builder above."""
    plain = type(create_policy(name, MODEL))

    def builder(self: PolicyBase, snapshot: Snapshot) -> PlanBuilder:
        return OneByOne(snapshot, self.model, self.steps.quantile(snapshot.slo.tbt_share))

    policy: SchedulingPolicy = type(f"OneByOne{name}", (plain,), {"_builder": builder})(MODEL)
    return policy


shapes = st.builds(
    EngineShape,
    total_pages=st.integers(30, 200),
    page_tokens=st.sampled_from([1, 16]),
    host_total_pages=st.sampled_from([0, 20]),
    total_slots=st.integers(2, 12),
    delay_steps=st.sampled_from([0, 1]),
    limits=st.builds(
        EngineLimits,
        max_chunk_tokens=st.sampled_from([32, 128]),
        max_batch_size=st.sampled_from([3, 1 << 30]),
        can_mix=st.booleans(),
        decode_safepoints=st.booleans(),
    ),
)
specs = st.lists(
    st.tuples(
        st.sampled_from(list(RequestClass)),
        st.integers(1, 120),
        st.integers(1, 40),
        st.floats(0.0, 2.0),
        st.floats(10.0, 1000.0),
        st.booleans(),
    ),
    min_size=1,
    max_size=30,
)


def plans(policy: SchedulingPolicy, shape: EngineShape, requests: list[Spec]) -> list[StepPlan]:
    driver = Driver(policy)
    engine = MemoryEngine(shape, Slo(0.4, 0.07), ProfiledTimes(MODEL), policy.at_arrival)
    for i, (cls, prompt, output, at_s, deadline_s, can_mix) in enumerate(requests):
        engine.submit(
            Request(
                f"r{i}", cls, prompt, prompt, output, arrival_at_s=at_s, batch_id=f"b{i % 3}",
                deadline_at_s=deadline_s, can_mix=can_mix,
            )
        )  # fmt: skip
    found = []
    for _ in range(30):
        plan = driver.begin(engine.snapshot()).plan
        found.append(plan)
        engine.apply(plan)
        for outcome in engine.outcomes():
            driver.end(outcome.step_id, outcome)
        if plan.is_empty:
            engine.skip_to_next_arrival()
    return found


@pytest.mark.parametrize("name", sorted(POLICIES))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(shape=shapes, requests=specs)
def test_every_policy_decides_the_same(
    name: str,
    shape: EngineShape,
    requests: list[Spec],
) -> None:
    assert plans(create_policy(name, MODEL), shape, requests) == plans(
        one_by_one(name), shape, requests
    )


@given(lengths=st.lists(st.integers(1, 2000), max_size=40), bound_s=st.floats(0.0, 0.3))
def test_no_more_requests_than_fit_and_no_fewer(lengths: list[int], bound_s: float) -> None:
    load = StepLoad()
    ready = DecodeReady(
        [
            Request(f"r{i}", RequestClass.OFFLINE, 1, 1, computed_tokens=length - 1)
            for i, length in enumerate(lengths)
        ],
        page_tokens=16,
    )
    fit, joined = requests_that_fit(MODEL, load, ready, len(ready), bound_s)
    assert load == StepLoad()
    assert joined == with_requests(load, ready, fit)
    for num_requests in (fit, fit + 1):
        trial = StepLoad()
        for length in lengths[:num_requests]:
            trial.add_decode(length - 1)
        fits = MODEL.predict(trial) <= bound_s or num_requests == 0
        assert fits == (num_requests == fit) or num_requests > len(lengths)


def test_pages_are_counted_from_the_front() -> None:
    assert requests_with_pages(Column([1, 0, 1, 1]), 4, 2) == 3
    assert requests_with_pages(Column([1, 0, 1, 1]), 2, 2) == 2, "no more than may join"
    assert requests_with_pages(Column([1, 1]), 2, -1) == 0
    assert requests_with_pages(Column([]), 0, 0) == 0
