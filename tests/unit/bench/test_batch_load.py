from __future__ import annotations

import os

import pytest

from bench.batch_load.fairness import jain
from bench.batch_load.samples import private_mib


def test_equal_shares_are_fair_and_one_taker_is_not() -> None:
    assert jain([5, 5, 5, 5]) == pytest.approx(1.0)
    assert jain([8, 0, 0, 0]) == pytest.approx(0.25)
    assert 0.25 < jain([4, 3, 2, 1]) < 1.0
    assert jain([0, 0]) == 1.0


def test_memory_is_read_of_a_living_process_only() -> None:
    assert 1.0 < private_mib(os.getpid()) < 10_000.0
    with pytest.raises(OSError, match="No such"):
        private_mib(2**22 + 1)
