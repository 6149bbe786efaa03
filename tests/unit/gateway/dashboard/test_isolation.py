"""Two distributions side by side."""

from __future__ import annotations

from engine_adapter.scheduling.distribution import Distribution
from gateway.dashboard.isolation import compare
from gateway.history.reading import Latencies, Moment


def seen(num: int, seconds: float) -> Latencies:
    one = Distribution()
    for _ in range(num):
        one.add(seconds, 0.1)
    return Latencies(one.figures())


def test_the_two_share_an_axis_and_are_compared_in_a_sentence() -> None:
    both = {"beside:tbt": seen(500, 0.05), "apart:tbt": seen(100, 0.04)}
    found = compare("tbt", Moment(0, both), 0.1)
    assert [side.seen.num for side in found.sides] == [500, 100]
    assert found.verdict == "P90 beside batch work: 49 ms, 25 % more than without."
    assert found.num_buckets == 6, "two to either side of what was seen"
    assert all(side.path.count("H") == found.num_buckets for side in found.sides)
    assert found.target_at is None or 0 <= found.target_at <= found.num_buckets


def test_few_are_not_compared() -> None:
    both = {"beside:tbt": seen(500, 0.05), "apart:tbt": seen(99, 0.04)}
    words = "Not enough was seen yet: without batch work 99 of 100 that it takes"
    assert compare("tbt", Moment(0, both), None).verdict == f"{words}."
    both = {"beside:tbt": seen(500, 0.05), "apart:tbt": seen(20, 0.04)}
    told = compare("tbt", Moment(0, both), None, 600.0).verdict
    assert told.endswith(
        "without batch work 20 of 100 that it takes, about 40 min more at this pace."
    )
    assert compare("ttft", Moment(0), 0.5).verdict.startswith("Not enough")
