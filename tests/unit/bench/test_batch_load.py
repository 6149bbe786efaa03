from __future__ import annotations

import os

import pytest

from bench.batch_load.prediction import Poll, errors
from bench.processes import private_mib
from bench.report import jain


def test_equal_shares_are_fair_and_one_taker_is_not() -> None:
    assert jain([5, 5, 5, 5]) == pytest.approx(1.0)
    assert jain([8, 0, 0, 0]) == pytest.approx(0.25)
    assert 0.25 < jain([4, 3, 2, 1]) < 1.0
    assert jain([0, 0]) == 0.0


def test_memory_is_read_of_a_living_process_only() -> None:
    assert 1.0 < private_mib(os.getpid()) < 10_000.0
    with pytest.raises(OSError, match="No such"):
        private_mib(2**22 + 1)


def test_predictions_are_judged_by_what_was_left_then() -> None:
    polls = [
        Poll(100.0, 0, None),
        Poll(101.0, 0, 191.0),
        Poll(120.0, 30, 210.0),
        Poll(150.0, 80, None),
        Poll(160.0, 85, 198.0),
    ]
    found = errors(polls, finished_at_s=200.0, num_lines=100)
    assert {name: one["error_s"] for name, one in found.items()} == {
        "at_0_percent": -9.0,
        "at_10_percent": 10.0,
        "at_25_percent": 10.0,
        "at_50_percent": -2.0,
        "at_75_percent": -2.0,
    }
    assert found["at_10_percent"]["relative_error"] == 0.125
    assert found["at_75_percent"] == {
        "progress": 0.85,
        "left_s": 40.0,
        "error_s": -2.0,
        "relative_error": 0.05,
    }
