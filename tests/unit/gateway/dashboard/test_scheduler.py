"""The scheduler's page draws what a real engine reported."""

from __future__ import annotations

import re

from engine_adapter.client.base import EngineFacts
from gateway.dashboard.engines import EngineReading
from gateway.dashboard.scheduler import NUM_STEPS, EngineSteps, draw, steps_of
from tests.fixtures.operator_site import recorded_report


def num_bars(path: str) -> int:
    return path.count("z")


def test_a_recorded_run_is_drawn_whole() -> None:
    report = recorded_report()
    steps = steps_of(report["recent_steps"])
    assert len(steps) == NUM_STEPS
    picture = draw(steps, 100.0)
    for at, name in enumerate(("online", "flex", "offline")):
        assert num_bars(picture.tokens[name]) == sum(step.tokens[at] > 0 for step in steps)
    assert num_bars(picture.tokens["online"]) > 20
    assert num_bars(picture.tokens["offline"]) > 20
    assert num_bars(picture.measured) == NUM_STEPS
    assert len(re.findall("[ML]", picture.predicted)) == NUM_STEPS
    most = max(sum(step.tokens) for step in steps)
    assert most <= picture.max_tokens <= 5 * most
    heights = [float(y) for y in re.findall(r"V([\d.-]+)", "".join(picture.tokens.values()))]
    assert all(0 <= height <= 100 for height in heights), "bars stay in their box"


def test_few_steps_stand_at_the_right() -> None:
    steps = steps_of([[1.0, 3, 0, 2, 10.0, 11.0, None]])
    picture = draw(steps, None)
    assert picture.tokens["online"].startswith("M199.1 ")
    assert picture.tokens["flex"] == ""
    assert picture.target is None


def test_stops_are_marked_over_the_whole_height() -> None:
    picture = draw(steps_of([[2.0, 0, 0, 0, 10.0, 4.0, 3], [1.0, 3, 0, 0, 10.0, 11.0, None]]), None)
    assert picture.stops == "M198.3 100.00V0.00h0.4V100.00z"


def test_the_target_is_drawn_where_it_is_in_sight() -> None:
    steps = steps_of([[1.0, 1, 0, 0, 80.0, 90.0, None]] * 20)
    assert draw(steps, 100.0).target == 0.0
    assert draw(steps, 5000.0).target is None


def test_another_report_is_no_picture() -> None:
    assert steps_of(None) == steps_of("x") == steps_of([[1, 2]]) == []
    assert EngineSteps(EngineReading("http://e", None)).said == "no step yet"


def test_requests_are_told_by_state() -> None:
    report = {"decoding": 4, "prefilling": 2, "waiting": 7, "retracted": 3, "parked_requests": 1}
    facts = EngineFacts("m", 2048, raw={"coserve": report})
    states = {name: num for name, num, _ in EngineSteps(EngineReading("http://e", facts)).states}
    assert states == {
        "Decoding": 4, "Prefilling": 2, "Restoring": 0, "Parked": 1, "Retracted": 3, "Queued": 4,
    }  # fmt: skip
