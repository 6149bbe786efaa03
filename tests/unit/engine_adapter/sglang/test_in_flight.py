"""When a device that is behind its host begins a pass."""

from __future__ import annotations

import pytest

from engine_adapter.sglang.counters import PassesInFlight


def test_a_device_with_nothing_to_do_begins_at_once() -> None:
    passes = PassesInFlight()
    assert passes.launch(1, 10.0, 0.5) == 10.0
    passes.over(1, 10.4)
    assert passes.launch(2, 10.4, 0.5) == 10.4


def test_behind_another_pass_it_begins_when_that_one_ends() -> None:
    passes = PassesInFlight()
    passes.launch(1, 10.0, 0.5)
    assert passes.launch(2, 10.1, 0.5) == 10.5
    assert passes.launch(3, 10.2, 0.5) == 11.0


def test_a_pass_that_is_late_ends_now_at_the_earliest() -> None:
    passes = PassesInFlight()
    passes.launch(1, 10.0, 0.5)
    assert passes.launch(2, 10.9, 0.5) == 10.9


def test_errors_of_predictions_do_not_add_up() -> None:
    """Each pass takes half of what is predicted, and is launched when the last but one is over."""
    passes = PassesInFlight()
    begins_at_s = passes.launch(0, 0.0, 1.0)
    for step in range(1, 100):
        now_s = 0.5 * (step - 1)
        if step > 1:
            passes.over(step - 2, now_s)
        begins_at_s = passes.launch(step, now_s, 1.0)
    assert begins_at_s <= 0.5 * 98 + 1.0


def test_it_waits_for_the_copies_of_its_step() -> None:
    passes = PassesInFlight()
    passes.launch(1, 10.0, 0.5)
    assert passes.launch(2, 10.1, 0.5, wait_s=0.03) == pytest.approx(10.53)


def test_a_stopped_pass_is_over_and_nothing_is_in_front_of_the_next() -> None:
    passes = PassesInFlight()
    passes.launch(1, 10.0, 5.0)
    passes.over(1, 10.2)
    passes.over(1, 10.3)  # its result comes later
    assert passes.launch(2, 10.3, 0.5) == 10.3
