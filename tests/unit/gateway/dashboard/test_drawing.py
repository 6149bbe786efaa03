"""Pictures as paths."""

from __future__ import annotations

import pytest

from gateway.dashboard.drawing import bars, line, nice_top, steps


def test_bars_stand_on_each_other() -> None:
    assert bars([5.0], [0.0], top=10.0, gap=0.0) == "M0 100.00V50.00h1V100.00z"
    assert bars([5.0], [5.0], top=10.0, gap=0.0) == "M0 50.00V0.00h1V50.00z"
    assert bars([0.0, 0.0], [0.0, 3.0], top=10.0) == "", "nothing is drawn of nothing"


def test_a_line_breaks_where_nothing_is_known_and_stays_in_the_box() -> None:
    assert line([None, 5.0, 10.0, None, 99.0], top=10.0) == "M1.5 50.00L2.5 0.00M4.5 0.00"


def test_an_outline_is_closed() -> None:
    assert steps([1.0, 0.5], top=1.0) == "M0 100V0.00H1V50.00H2V100z"


@pytest.mark.parametrize(
    ("value", "top"), [(0.0, 1.0), (0.3, 0.5), (1.0, 1.0), (7.0, 10.0), (180.0, 200.0), (512, 1000)]
)
def test_upper_ends_are_round(value: float, top: float) -> None:
    assert nice_top(value) == pytest.approx(top)
