"""How stock's settings are chosen, and what counts as beaten."""

from __future__ import annotations

from typing import Any

import pytest

from bench.against_stock import (
    BEST,
    CHOICE_SEED,
    MIXED,
    OURS,
    beside,
    best_setting,
    renamed,
    shown_systems,
    todo,
)
from bench.cells import SEEDS
from bench.frontier import BOTH, STOCK, Point, above, beaten
from bench.frontier import OURS as FRONTIER_OURS

CHOICE: dict[str, Any] = {
    "case": ["h200", "gamma", CHOICE_SEED],
    "systems": {
        "non_preemptive": {"ttft_p90_s": 0.1, "offline": 9.0},
        "sglang_priority@256": {"ttft_p90_s": 1.5, "offline": 1.0},
        "sglang_priority@512": {"ttft_p90_s": 1.501, "offline": 2.0},
        "sglang_priority@512+mixed": {"ttft_p90_s": 3.0, "offline": 3.0},
    },
}


def test_stock_is_shown_at_its_best_and_at_its_best_with_mixing() -> None:
    assert best_setting(CHOICE) == "sglang_priority@512"  # equal as printed, and more work
    assert best_setting(CHOICE, "+mixed") == "sglang_priority@512+mixed"
    shown = shown_systems(CHOICE)
    assert shown["sglang_no_preemption@512"][0] == "sglang_no_preemption"
    rows = {name: {"offline": float(i)} for i, name in enumerate(shown)}
    cell = {"case": ["h200", "gamma", 101], "systems": rows}
    found = renamed([cell], [CHOICE])[0]["systems"]
    assert found[BEST] is rows["sglang_priority@512"]
    assert found[MIXED] is rows["sglang_priority@512+mixed"]
    assert "sglang_no_preemption" in found


def test_a_choice_comes_before_what_it_is_made_for() -> None:
    first = list(todo([], ["h200"], ["gamma"]))
    assert [case.seed for case, _ in first] == [CHOICE_SEED]
    then = list(todo([CHOICE], ["h200"], ["gamma"]))
    assert [case.seed for case, _ in then] == list(SEEDS)


@pytest.mark.parametrize(
    ("offline", "text", "won"),
    [(1.0, "0.50 · 1.00 · 1.00", True), (0.9, "0.50 · 1.00 · **0.90**", False)],
)
def test_all_three_are_asked(offline: float, text: str, won: bool) -> None:
    seen = {
        OURS: {"ttft_s": 1.0, "gap_s": 1.004, "offline": offline},
        BEST: {"ttft_s": 2.0, "gap_s": 1.0, "offline": 1.0},
    }
    assert beside(seen, BEST) == (text, won)


def test_a_point_above_on_one_axis_need_not_beat_ours() -> None:
    ours = [
        Point(FRONTIER_OURS, BOTH, "a", 1.0, 1.0, 0.5),
        Point(FRONTIER_OURS, BOTH, "b", 2.0, 2.0, 0.7),
    ]
    late = Point("stock", STOCK, "x", 3.0, 1.5, 0.65)
    assert above([*ours, late], "gap_s") == [late]  # our line has 0.6 there
    assert above([*ours, late], "ttft_s") == []
    assert beaten([*ours, late]) == []
    better = Point("stock", STOCK, "y", 2.0, 2.0, 0.7)
    assert beaten([*ours, better]) == [ours[1]]
