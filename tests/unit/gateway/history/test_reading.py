"""Charts from steps of the history."""

from __future__ import annotations

import random

import pytest

from engine_adapter.scheduling.distribution import Distribution
from gateway.history.reading import CHART_SPANS, Latencies, Mark, history_of, marks
from gateway.history.series import COUNTERS, NUM_CUMULATIVE, EngineTime
from store.repositories.history import STEPS, Point


def engine_figures(**named: float) -> list[float]:
    return [*EngineTime(**named)]


def test_what_only_grows_comes_first() -> None:
    assert EngineTime._fields[:NUM_CUMULATIVE] == (*COUNTERS, "stop_s")


def test_points_of_earlier_and_later_versions_are_read() -> None:
    whole = [*range(len(EngineTime._fields))]
    points = [Point(0, "engine", "a", whole[:3]), Point(0, "engine", "b", [*whole, 99])]
    (moment,) = history_of(points, 10).moments
    assert moment.engines == {"a": EngineTime(0, 1, 2), "b": EngineTime(*whole)}
    assert moment.all_engines[:4] == (0, 2, 4, 3)


def latencies(*seconds: float, target_s: float = 0.1) -> list[float]:
    seen = Distribution()
    for one in seconds:
        seen.add(one, target_s)
    return seen.figures()


@pytest.mark.parametrize("share", [0.5, 0.9, 0.99])
def test_a_percentile_is_right_to_a_quarter(share: float) -> None:
    chance = random.Random(7)
    values = [chance.lognormvariate(-3.0, 0.8) for _ in range(5000)]
    exact = sorted(values)[int(share * len(values))]
    assert Latencies(latencies(*values)).quantile_s(share) == pytest.approx(exact, rel=0.13)


def test_nothing_seen_is_nothing_said() -> None:
    assert Latencies().quantile_s(0.5) is None
    assert Latencies().share_in_time is None
    assert Latencies(latencies(200.0)).quantile_s(0.5) == 63.0, "the last edge there is"


def test_engines_and_moments_are_added_up() -> None:
    points = [
        Point(600, "tbt:online", "", latencies(0.05, 0.2)),
        Point(600, "engine", "e1", engine_figures(online_tokens=80, asked=2)),
        Point(600, "engine", "e2", engine_figures(online_tokens=20, asked=1)[:3]),
        Point(660, "engine", "e1", engine_figures(online_tokens=7, asked=1)),
    ]
    found = history_of(points, 60)
    assert found.x == [600, 660]
    first, second = found.moments
    assert (first.of("tbt:online").num, first.of("tbt:online").share_in_time) == (2, 0.5)
    assert first.all_engines.online_tokens == 100
    assert first.per_s(100) == 5.0, "two writes of ten seconds"
    assert second.of("tbt:online").num == 0
    assert found.whole.all_engines.online_tokens == 107
    assert found.last(60).all_engines.online_tokens == 7


def test_every_span_is_drawn_with_steps_that_are_kept_as_long() -> None:
    for span in CHART_SPANS.values():
        assert span.span_s <= STEPS[span.step_s]
        assert span.span_s / span.step_s <= 200


def test_points_in_between_are_there_and_hold_nothing() -> None:
    found = history_of([Point(at, "engine", "e", engine_figures(asked=1)) for at in (0, 40)], 10)
    assert found.x == [0, 10, 20, 30, 40]
    assert [one.per_s(1.0) for one in found.moments] == [0.1, None, None, None, 0.1]
    assert found.quantiles_ms("ttft:online", 0.5) == [None] * 5


def test_the_axis_is_the_span_and_ends_with_the_step_of_now() -> None:
    span = CHART_SPANS["15m"]
    assert span.bounds(1_000_003.4) == (1_000_010 - 900, 1_000_010)


def test_what_happened_to_engines_is_marked_once() -> None:
    well = {"asked": 1.0, "up": 1.0}
    seen = [
        ("e1", well),
        ("e1", {"asked": 1.0}),
        ("e1", {"asked": 1.0}),
        ("e1", well),
        ("e1", {**well, "draining": 1.0}),
        ("e1", well),
        ("e1", {"asked": 1.0}),
        ("e1", {**well, "restarts": 1.0}),
        ("e1", {}),
        ("e1", well),
    ]
    points = [
        Point(10 * at, "engine", url, engine_figures(**figures))
        for at, (url, figures) in enumerate(seen)
    ]
    points.append(Point(0, "engine", "e2", engine_figures(asked=1)[:8]))
    assert marks(history_of(points, 10)) == [
        Mark(10, "e1", "lost"),
        Mark(30, "e1", "back"),
        Mark(40, "e1", "drained"),
        Mark(50, "e1", "used again"),
        Mark(60, "e1", "lost"),
        Mark(70, "e1", "restarted"),
    ]
