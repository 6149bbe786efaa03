"""What the first page says of the engines."""

from __future__ import annotations

import pytest

from gateway.dashboard.overview import harvested_shares
from gateway.history.reading import EngineTime
from gateway.history.recorder import PERIOD_S
from gateway.history.series import ENGINE


def engines(**figures: float) -> EngineTime:
    return EngineTime([figures.get(name, 0.0) for name in ENGINE])


def test_what_is_harvested_is_a_share_of_what_could_be() -> None:
    half_busy = engines(
        online_tokens=100, harvested_tokens=300, step_s=5 * PERIOD_S, up=10, asked=10
    )
    assert harvested_shares(half_busy) == (0.375, 0.75)


def test_steps_that_overlap_make_no_engine_more_than_busy() -> None:
    found = harvested_shares(engines(harvested_tokens=9, step_s=99 * PERIOD_S, up=10))
    assert found == (1.0, 1.0)


@pytest.mark.parametrize("figures", [{}, {"up": 5.0}, {"online_tokens": 5.0}])
def test_without_a_token_or_an_engine_nothing_is_said(figures: dict[str, float]) -> None:
    assert harvested_shares(engines(**figures)) == (None, None)
