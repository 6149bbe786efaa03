"""What is claimed from how many chats."""

from __future__ import annotations

import pytest

from coserve.prove.clients import Seen
from coserve.prove.findings import ALONE, BESIDE, STOCK, Taken, claims, figures, ratio_interval


def taken(num: int, ttft_s: float, *, failed: int = 0, tokens: int = 0) -> Taken:
    seen = [Seen(number, ttft_s + number / 1e4, [0.01, 0.02]) for number in range(num)]
    seen += [Seen(num + number, None, error="503: busy") for number in range(failed)]
    return Taken(seen, seconds=10.0, batch_tokens=tokens)


@pytest.mark.parametrize(
    ("num", "made", "lacks"),
    [(29, [], 30), (30, ["P50"], 100), (100, ["P50", "P90"], 300), (300, ["P50", "P90", "P99"], 0)],
)
def test_claims_need_chats_enough(num: int, made: list[str], lacks: int) -> None:
    found = claims({ALONE: taken(num, 0.1), BESIDE: taken(num, 0.2)}, rate_per_s=1.0)
    assert [one.split(", ")[1] for one in found.made] == made
    if lacks:
        (why,) = found.refused
        assert f"and {lacks} are needed" in why
        assert "--minutes" in why
    else:
        assert found.refused == []


def test_the_smallest_system_decides() -> None:
    systems = {ALONE: taken(300, 0.1), BESIDE: taken(300, 0.2), STOCK: taken(12, 0.3)}
    found = claims(systems, rate_per_s=1.0)
    assert found.made == []
    assert "12 chats were answered" in found.refused[0]


def test_chats_that_failed_are_told_and_were_late() -> None:
    alone, beside = taken(300, 0.1), taken(300, 0.1, failed=100)
    found = claims({ALONE: alone, BESIDE: beside}, rate_per_s=1.0)
    assert "100 of 400 chats failed: chat with a batch by coserve." in found.refused
    assert figures(beside, alone)["in_time"] == 0.75


def test_figures_are_milliseconds_and_tokens_a_second() -> None:
    found = figures(taken(30, 0.1, tokens=500), taken(30, 0.1))
    assert found["batch_tokens_per_s"] == 50
    assert found["ttft_ms"]["p50"] == pytest.approx(101.45)
    assert found["gap_ms"]["max"] == pytest.approx(20)
    assert found["ttft_ms"]["p99"] is None
    assert found["in_time"] is None


def test_an_interval_holds_the_ratio_and_is_the_same_each_time() -> None:
    ours, alone = taken(100, 0.2).ttfts_s, taken(100, 0.1).ttfts_s
    low, high = ratio_interval(ours, alone, 0.9)
    assert low < 0.2099 / 0.1099 < high
    assert (low, high) == ratio_interval(ours, alone, 0.9)
