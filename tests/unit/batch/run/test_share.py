from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batch.run.share import Demand, divide

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def demand(
    batch_id: str,
    project_id: str = "p",
    *,
    waiting: int = 1000,
    held: int = 0,
    hours: float = 24,
    priority: int = 0,
) -> Demand:
    return Demand(batch_id, project_id, priority, NOON + timedelta(hours=hours), waiting, held)


def test_projects_share_evenly() -> None:
    quotas = divide(90, [demand("a", "one"), demand("b", "two"), demand("c", "three")])
    assert quotas == {"a": 30, "b": 30, "c": 30}


def test_places_that_cannot_be_halved_go_round() -> None:
    demands = [demand(name, name) for name in "abc"]
    got = [divide(1, demands, turn=turn) for turn in range(4)]
    assert got == [{"a": 1}, {"b": 1}, {"c": 1}, {"a": 1}]
    assert sum(divide(7, demands, turn=5).values()) == 7


def test_a_project_with_many_batches_gets_no_more_than_one_with_one() -> None:
    quotas = divide(100, [demand(f"a{n}", "one") for n in range(9)] + [demand("b", "two")])
    assert quotas["b"] == 50


def test_places_held_already_count() -> None:
    quotas = divide(40, [demand("a", "one", held=60), demand("b", "two", held=0)])
    assert quotas == {"b": 40}


def test_what_one_cannot_use_goes_to_the_others() -> None:
    assert divide(100, [demand("a", "one", waiting=5), demand("b", "two")]) == {"a": 5, "b": 95}


def test_the_nearer_deadline_goes_first_but_nobody_starves() -> None:
    quotas = divide(100, [demand("late", hours=20), demand("soon", hours=2)])
    assert quotas == {"soon": 75, "late": 25}
    assert next(iter(quotas)) == "soon"


@pytest.mark.contract("E-16")
def test_a_small_batch_does_not_wait_for_large_ones() -> None:
    large = [demand(f"large{n}", hours=2) for n in range(4)]
    assert divide(100, [*large, demand("small", waiting=20, hours=20)])["small"] == 10


def test_priority_goes_before_deadline() -> None:
    quotas = divide(100, [demand("soon", hours=2), demand("high", hours=20, priority=1)])
    assert quotas["high"] == 90


def test_the_minimum_share_is_kept_over_time_not_per_claim() -> None:
    # The late batch holds its share already, so that freed places go to the first one.
    quotas = divide(8, [demand("late", hours=20, held=25), demand("soon", hours=2, held=67)])
    assert quotas == {"soon": 8}


def test_one_free_place_goes_to_the_batch_that_holds_nothing() -> None:
    quotas = divide(1, [demand("late", hours=20, held=0), demand("soon", hours=2, held=3)])
    assert quotas == {"late": 1}


def test_nothing_to_do() -> None:
    assert divide(10, []) == {}
    assert divide(0, [demand("a")]) == {}
    assert divide(10, [demand("a", waiting=0)]) == {}


demands_of = st.lists(
    st.builds(
        demand,
        st.uuids().map(str),
        st.sampled_from(["one", "two", "three"]),
        waiting=st.integers(0, 300),
        held=st.integers(0, 100),
        hours=st.floats(0, 24),
        priority=st.integers(-1, 1),
    ),
    max_size=12,
    unique_by=lambda d: d.batch_id,
)


@given(num_free=st.integers(0, 400), demands=demands_of)
def test_all_places_are_used_and_no_batch_gets_more_than_it_wants(
    num_free: int, demands: list[Demand]
) -> None:
    quotas = divide(num_free, demands)
    assert sum(quotas.values()) == min(num_free, sum(d.num_waiting for d in demands))
    waiting = {d.batch_id: d.num_waiting for d in demands}
    assert all(0 < n <= waiting[batch_id] for batch_id, n in quotas.items())


@given(num_free=st.integers(0, 400), demands=demands_of)
def test_no_project_that_wants_more_is_left_behind(num_free: int, demands: list[Demand]) -> None:
    quotas = divide(num_free, demands)
    level: dict[str, int] = {}
    unmet: dict[str, int] = {}
    given_to: dict[str, int] = {}
    for d in demands:
        got = quotas.get(d.batch_id, 0)
        level[d.project_id] = level.get(d.project_id, 0) + d.num_in_flight + got
        unmet[d.project_id] = unmet.get(d.project_id, 0) + d.num_waiting - got
        given_to[d.project_id] = given_to.get(d.project_id, 0) + got
    for poor in level:
        for rich in level:
            if unmet[poor] and given_to[rich]:
                assert level[rich] <= level[poor] + 1
