from __future__ import annotations

import re

import pytest

from gateway.limits.rates import Rates, duration


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (0, "0s"),
        (1, "1ms"),
        (20_000, "20ms"),
        (999_999, "1000ms"),
        (1_000_000, "1s"),
        (1_000_001, "2s"),
        (59_000_001, "1m0s"),
        (120_000_000, "2m0s"),
        (360_000_000, "6m0s"),
    ],
)
def test_durations(us: int, text: str) -> None:
    assert duration(us) == text


def test_durations_survive_the_known_reader() -> None:
    """The expression that clients use (row T-10), and what it makes of them."""
    units = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
    for us in (1, 20_000, 999_999, 1_000_000, 61_500_000, 120_000_000):
        parts = re.findall(r"(\d+)([hms]+)", duration(us))
        read_s = sum(int(number) * units[unit] for number, unit in parts)
        assert us / 1e6 <= read_s <= us / 1e6 + 1.0


def test_own_limits_go_before_the_settings() -> None:
    default = Rates(10, 100)
    assert Rates().over(default) == default
    assert Rates(5, None).over(default) == Rates(5, 100)
    assert Rates(0, 0).over(default) == Rates(0, 0)
