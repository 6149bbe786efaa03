"""When an emulated device is busy: on a clock of the test's own."""

from __future__ import annotations

import pytest

from lab.emulated.timeline import Timeline


class Hands:
    """A clock that only moves when somebody sleeps or works."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.slept: list[float] = []
        self.oversleep_s = 0.0
        self.timeline = Timeline(lambda: self.now_s, self.sleep)

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now_s += seconds + self.oversleep_s

    def work(self, seconds: float) -> None:
        self.now_s += seconds

    def run(self, duration_s: float, layers: int = 4) -> None:
        self.timeline.begin(duration_s)
        for layer in range(layers):
            self.timeline.reach((layer + 1) / layers)


def test_a_pass_takes_its_time_layer_by_layer() -> None:
    hands = Hands()
    hands.run(0.040)
    assert hands.now_s == pytest.approx(100.040)
    assert hands.slept == pytest.approx([0.010] * 4)
    assert hands.timeline.last_s == pytest.approx(0.040)


def test_short_layers_are_waited_for_together() -> None:
    hands = Hands()
    hands.run(0.004, layers=32)
    assert hands.now_s == pytest.approx(100.004)
    assert 3 <= len(hands.slept) <= 4


def test_what_the_host_does_between_two_passes_is_hidden() -> None:
    hands = Hands()
    hands.run(0.010)
    hands.work(0.004)
    hands.run(0.010)
    assert hands.now_s == pytest.approx(100.020)
    assert hands.timeline.last_s == pytest.approx(0.010)


def test_a_device_that_was_idle_begins_at_the_launch() -> None:
    hands = Hands()
    hands.run(0.010)
    hands.work(0.030)
    hands.run(0.010)
    assert hands.now_s == pytest.approx(100.050)


def test_a_pass_that_loses_rows_gets_shorter_from_there_on() -> None:
    hands = Hands()
    timeline = hands.timeline
    timeline.begin(0.100)
    timeline.reach(0.25)
    timeline.change(0.25, 0.020)
    timeline.reach(1.0)
    assert hands.now_s == pytest.approx(100.025 + 0.015)
    assert timeline.last_s == pytest.approx(0.040)


def test_after_a_pass_that_was_stopped_the_device_is_free() -> None:
    hands = Hands()
    hands.timeline.begin(0.100)
    hands.timeline.reach(0.5)
    hands.run(0.010)
    assert hands.now_s == pytest.approx(100.060)
    assert hands.timeline.counts.passes == 1


def test_late_passes_are_counted() -> None:
    hands = Hands()
    hands.run(0.010)
    hands.oversleep_s = 0.003
    hands.run(0.010, layers=1)
    counts = hands.timeline.counts
    assert (counts.passes, counts.late) == (2, 1)
    assert counts.worst_s == pytest.approx(0.003) == counts.late_s
    assert counts.busy_s == pytest.approx(0.020)
    # The next one begins where this one should have ended: lateness does not add up.
    hands.oversleep_s = 0.0
    hands.run(0.010, layers=1)
    assert hands.now_s == pytest.approx(100.030)
