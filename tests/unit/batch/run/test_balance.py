from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from batch.run.balance import Held, rebalance, under_served
from batch.run.share import Demand

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def demand(batch_id: str, project_id: str, *, num_open: int = 10_000, priority: int = 0) -> Demand:
    return Demand(batch_id, project_id, priority, NOON, num_open, 0)


def test_a_newcomer_gets_a_place_of_the_queue() -> None:
    demands = [demand("big", "one"), demand("small", "two", num_open=1)]
    held = {"big": Held(num_begun=48, num_queued=16)}
    assert under_served(64, demands, held) == {"small": 1}
    assert rebalance(64, demands, held, {"small": 1}) == {"big": 1}
    assert rebalance(65, demands, held, {"small": 1}) == {}, "there is a free place"
    assert rebalance(60, demands, held, {"small": 1}) == {"big": 5}, "the window has shrunk"
    assert rebalance(64, demands, held, {}) == {}, "its row cannot be claimed now"


def test_what_has_begun_stays() -> None:
    demands = [demand("big", "one"), demand("small", "two")]
    held = {"big": Held(num_begun=64)}
    assert rebalance(64, demands, held, {"small": 32}) == {}


def test_a_batch_that_was_preferred_gets_the_queue() -> None:
    demands = [demand("first", "one"), demand("second", "one", priority=9)]
    held = {"first": Held(num_begun=10, num_queued=30)}
    short = under_served(40, demands, held)
    assert short == {"second": 30}
    assert rebalance(40, demands, held, short) == {"first": 30}


def test_small_differences_even_out_by_themselves() -> None:
    demands = [demand("a", "one"), demand("b", "two")]
    held = {"a": Held(num_begun=10, num_queued=4), "b": Held(num_begun=8, num_queued=0)}
    assert under_served(22, demands, held) == {}


places = st.builds(Held, st.integers(0, 50), st.integers(0, 50))


@given(
    size=st.integers(0, 200),
    held=st.dictionaries(st.sampled_from("abcdef"), places, max_size=6),
    num_open=st.lists(st.integers(0, 300), min_size=6, max_size=6),
)
def test_nobody_gives_more_than_is_spare(
    size: int, held: dict[str, Held], num_open: list[int]
) -> None:
    demands = [
        demand(name, name if name < "d" else "d", num_open=num)
        for name, num in zip("abcdef", num_open, strict=True)
    ]
    wanted = under_served(size, demands, held)
    given_back = rebalance(size, demands, held, wanted)
    assert not given_back.keys() & wanted.keys()
    assert all(0 < num <= held[name].num_queued for name, num in given_back.items())
    num_free = size - sum(one.num for one in held.values())
    assert sum(given_back.values()) <= max(0, sum(wanted.values()) - num_free)
