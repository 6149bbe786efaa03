"""What the first page says of the engines."""

from __future__ import annotations

import pytest

from gateway.dashboard.overview import harvested_shares, latency_card
from gateway.history.reading import history_of
from gateway.history.recorder import PERIOD_S
from gateway.history.series import EngineTime
from gateway.verdict.facts import LOOK_BACKS, Facts, Kept, LookBack
from gateway.verdict.facts import Engine as EngineFact
from gateway.verdict.judge import MIN_JUDGED, judge


def test_what_is_harvested_is_a_share_of_what_could_be() -> None:
    half_busy = EngineTime(
        online_tokens=100, harvested_tokens=300, step_s=5 * PERIOD_S, up=10, asked=10
    )
    assert harvested_shares(half_busy) == (0.375, 0.75)


def test_steps_that_overlap_make_no_engine_more_than_busy() -> None:
    found = harvested_shares(EngineTime(harvested_tokens=9, step_s=99 * PERIOD_S, up=10))
    assert found == (1.0, 1.0)


@pytest.mark.parametrize("figures", [{}, {"up": 5.0}, {"online_tokens": 5.0}])
def test_without_a_token_or_an_engine_nothing_is_said(figures: dict[str, float]) -> None:
    assert harvested_shares(EngineTime(**figures)) == (None, None)


@pytest.mark.parametrize("num", [1, MIN_JUDGED - 1, MIN_JUDGED, 100])
def test_a_tile_says_what_the_verdict_says(num: int) -> None:
    looks = [LookBack(n, {"ttft:online": Kept(0, num, num)}) for n in LOOK_BACKS]
    card = latency_card("ttft", history_of([], 10), looks, [], {})
    chat = judge(Facts(engines=[EngineFact("a", "m")], look_backs=looks)).chat
    assert card.tone == chat.tone
    if num < MIN_JUDGED:
        assert (card.judged, card.label) == (None, "too few samples in the last hour")
        assert chat.state == "too_few"
    else:
        assert (card.judged, card.label) == (0.0, "last minute")
        assert chat.state == "late"
