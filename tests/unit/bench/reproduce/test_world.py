"""Rates that a policy sustains."""

from __future__ import annotations

from dataclasses import replace

from bench.reproduce import ecoserve
from bench.reproduce.world import CLOSE, sustained_rate, unloaded

SHORT = replace(ecoserve.LOADS["Alpaca"][0], duration_s=3.0)


def test_a_rate_below_those_tried_first_is_found() -> None:
    quiet = unloaded(SHORT, 1)
    alone = sustained_rate(SHORT, "orca:max_requests=1", 1, 60.0, quiet)
    two = sustained_rate(SHORT, "orca:max_requests=2", 1, 60.0, quiet)
    assert 0.0 < alone < two < 60.0 / 16.0


def test_a_rate_is_found_to_a_part_of_it() -> None:
    quiet = unloaded(SHORT, 1)
    found = [
        sustained_rate(SHORT, "orca:max_requests=2", 1, 60.0, quiet, rounds=rounds)
        for rounds in (4, 10)
    ]
    assert found[0] <= found[1] <= found[0] * (1.0 + CLOSE)
