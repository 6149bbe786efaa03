from __future__ import annotations

from engine_adapter.sglang.counters import COLD_STEPS, Counters


def test_the_first_steps_say_nothing_about_the_machine() -> None:
    assert not Counters().is_warm
    assert not Counters(steps=COLD_STEPS - 1).is_warm
    assert Counters(steps=COLD_STEPS).is_warm


def test_stops_are_added_up_by_layer() -> None:
    counters = Counters()
    counters.stopped(3, 0.25, 2)
    counters.stopped(3, 0.5, 1)
    counters.stopped(7, 0.125, 1)
    plain = counters.to_plain()
    assert plain["stops_by_layer"] == {
        "3": {"num": 2, "sum_s": 0.75},
        "7": {"num": 1, "sum_s": 0.125},
    }
    assert (plain["undone_rows"], plain["stop_layers"]) == (4, [3, 3, 7])
