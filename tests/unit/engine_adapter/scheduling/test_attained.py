from __future__ import annotations

import pytest

from engine_adapter.scheduling.isolation import AttainedLatency, Tokens
from engine_adapter.scheduling.targets import Slo

SLO = Slo(ttft_s=1.0, tbt_s=0.1)


def test_first_tokens_run_from_arrival_and_others_from_the_one_before() -> None:
    attained = AttainedLatency()
    attained.tokens(Tokens(10.5, arrived_at_s=[10.0]))
    for now_s in (10.55, 10.6):
        attained.tokens(Tokens(now_s, last_at_s=[now_s - 0.05]))
    attained.tokens(Tokens(10.8, last_at_s=[10.6]))
    found = attained.to_plain(SLO)
    assert found["ttft"] == {"num": 1, "p50_s": 0.5, "p90_s": 0.5, "share_in_time": 1.0}
    assert found["tbt"]["num"] == 3
    assert found["tbt"]["p50_s"] == pytest.approx(0.05)
    assert found["tbt"]["p90_s"] == pytest.approx(0.2)
    assert found["tbt"]["share_in_time"] == pytest.approx(2 / 3)


def test_nothing_is_said_where_nothing_was_seen() -> None:
    assert AttainedLatency().to_plain(SLO) == {}


def test_only_the_newest_count() -> None:
    attained = AttainedLatency(num_kept=10)
    for ttft_s in [9.0] * 50 + [0.5] * 10:
        attained.tokens(Tokens(ttft_s, arrived_at_s=[0.0]))
    assert attained.to_plain(SLO)["ttft"]["share_in_time"] == 1.0
    assert attained.to_plain(SLO)["ttft"]["num"] == 10
