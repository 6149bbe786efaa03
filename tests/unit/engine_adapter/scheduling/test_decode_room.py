"""Taking rows in runs decides what taking them one by one decides."""

from __future__ import annotations

import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine_adapter.scheduling.builder import (
    ONLINE,
    PlanBuilder,
    rows_that_fit,
    rows_with_pages,
    with_rows,
)
from engine_adapter.scheduling.driver import Driver
from engine_adapter.scheduling.latency import Coefficients, PolynomialModel, StepLoad
from engine_adapter.scheduling.plan import StepPlan
from engine_adapter.scheduling.policies.base import PolicyBase, SchedulingPolicy
from engine_adapter.scheduling.policies.registry import create_policy
from engine_adapter.scheduling.request import RequestClass, RequestRow
from engine_adapter.scheduling.snapshot import Column, EngineLimits, ReadyRows, Snapshot
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
    """The rules as they read, row after row."""

    def decode_run(self, ready: ReadyRows, budget_s: float) -> int:
        for num_taken, row in enumerate(ready.rows):
            if not self._take_one(row, budget_s):
                return num_taken
        return len(ready)

    def _take_one(self, row: RequestRow, budget_s: float) -> bool:
        mixes = self.snapshot.limits.can_mix and row.can_mix and not self.has_unmixable
        if self.rows_left <= 0 or (self._prefill and not mixes):
            return False
        pages = self.decode_pages(row)
        if pages > self.pages_left:
            return False
        if budget_s != math.inf:
            predicted_s = self.model.predict_with_decode(self.load, row.computed_tokens)
            if predicted_s > self.bounded_s(budget_s):
                return False
        self.pages_left -= max(0, pages)
        self.load.add_decode(row.computed_tokens)
        self._decode.append(row.rid)
        self.rows_left -= 1
        self.taken.add(row.rid)
        self.has_unmixable = self.has_unmixable or not row.can_mix
        if row.request_class is ONLINE:
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
        max_batch_rows=st.sampled_from([3, 1 << 30]),
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


def plans(policy: SchedulingPolicy, shape: EngineShape, rows: list[Spec]) -> list[StepPlan]:
    driver = Driver(policy)
    engine = MemoryEngine(shape, Slo(0.4, 0.07), ProfiledTimes(MODEL), policy.at_arrival)
    for i, (cls, prompt, output, at_s, deadline_s, can_mix) in enumerate(rows):
        engine.submit(
            RequestRow(
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
@given(shape=shapes, rows=specs)
def test_every_policy_decides_the_same(
    name: str,
    shape: EngineShape,
    rows: list[Spec],
) -> None:
    assert plans(create_policy(name, MODEL), shape, rows) == plans(one_by_one(name), shape, rows)


@given(lengths=st.lists(st.integers(1, 2000), max_size=40), bound_s=st.floats(0.0, 0.3))
def test_no_more_rows_than_fit_and_no_fewer(lengths: list[int], bound_s: float) -> None:
    load = StepLoad()
    ready = ReadyRows(
        [
            RequestRow(f"r{i}", RequestClass.OFFLINE, 1, 1, computed_tokens=length - 1)
            for i, length in enumerate(lengths)
        ],
        page_tokens=16,
    )
    fit, joined = rows_that_fit(MODEL, load, ready, len(ready), bound_s)
    assert load == StepLoad()
    assert joined == with_rows(load, ready, fit)
    for num_rows in (fit, fit + 1):
        trial = StepLoad()
        for length in lengths[:num_rows]:
            trial.add_decode(length - 1)
        fits = MODEL.predict(trial) <= bound_s or num_rows == 0
        assert fits == (num_rows == fit) or num_rows > len(lengths)


def test_pages_are_counted_from_the_front() -> None:
    assert rows_with_pages(Column([1, 0, 1, 1]), 4, 2) == 3
    assert rows_with_pages(Column([1, 0, 1, 1]), 2, 2) == 2, "no more than may join"
    assert rows_with_pages(Column([1, 1]), 2, -1) == 0
    assert rows_with_pages(Column([]), 0, 0) == 0
