"""The mean gap between passes, without idle time."""

from __future__ import annotations

import pytest

from engine_adapter.sglang.pass_gap import LONGEST_GAP_S, PassGap


def test_gaps_between_passes_are_averaged() -> None:
    gap = PassGap()
    gap.started(0.0)
    assert gap.mean_s == 0.0
    gap.ended(1.0)
    gap.started(1.004)
    assert gap.mean_s == pytest.approx(0.004)
    gap.ended(2.0)
    gap.started(2.014)
    assert gap.mean_s == pytest.approx(0.005)


def test_idle_time_is_no_gap() -> None:
    gap = PassGap()
    gap.ended(1.0)
    gap.started(1.0 + LONGEST_GAP_S + 0.001)
    assert gap.mean_s == 0.0
