from __future__ import annotations

from engine_adapter.sglang_plugin.counters import COLD_STEPS, Counters


def test_the_first_steps_say_nothing_about_the_machine() -> None:
    assert not Counters().is_warm
    assert not Counters(steps=COLD_STEPS - 1).is_warm
    assert Counters(steps=COLD_STEPS).is_warm
