"""Cut rows, late ranks, cached prefixes and the end of the monitor."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from tests.engine.engine_scripts import LIMIT_S, run_script

pytestmark = pytest.mark.timeout(LIMIT_S)


@cache
def results() -> dict[str, Any]:
    return run_script("runtime_cases.py")


def test_rows_are_cut_out_of_hidden_states_and_positions() -> None:
    assert results()["plain"] == {
        "rows": [0, 1, 5],
        "positions": [0, 1, 5],
        "axes": None,
        "marked": False,
    }


def test_a_sum_that_is_left_to_the_next_layer_is_still_taken() -> None:
    assert results()["pending"]["marked"] is True


def test_positions_of_three_axes_are_cut_along_their_tokens() -> None:
    kept = [[0, 1, 5], [6, 7, 11], [12, 13, 17]]
    assert results()["axes"]["positions"] == kept
    assert results()["axes"]["axes"] == kept


def test_a_late_rank_stops_where_its_own_step_stopped() -> None:
    assert results()["late_rank"] == {"went_on": False, "stopped": True, "next": True}


def test_the_prefix_of_an_arrival_is_found_without_touching_the_tree() -> None:
    assert results()["prefixes"]["compared"] == 600
    assert results()["prefixes"]["longest"] > 4


def test_what_ends_the_monitor_ends_the_scheduler() -> None:
    assert results()["dead_monitor"]["said"] == ["the monitor of arrivals has ended"]
