"""What was harvested, as amounts."""

from __future__ import annotations

import pytest

from gateway.verdict.harvest import Harvest, Price


@pytest.mark.parametrize(
    ("said", "price"),
    [
        ("", None),
        ("0.30 USD", Price(0.30, "USD")),
        (" 2€ ", Price(2.0, "€")),
    ],
)
def test_a_price_is_an_amount_and_a_currency(said: str, price: Price | None) -> None:
    assert Price.parse(said) == price


@pytest.mark.parametrize("said", ["cheap", "0.3", "USD", "-1 USD", "1,5 USD", "1 Taler"])
def test_what_is_no_price_is_refused(said: str) -> None:
    with pytest.raises(ValueError, match=r"such as 0\.30 USD"):
        Price.parse(said)


@pytest.mark.parametrize(
    ("engine_s", "on_gpus", "said"),
    [
        (None, False, ""),
        (0.0, True, ""),
        (7560.0, False, "2.1 engine-hours"),
        (7560.0, True, "2.1 GPU-hours"),
        (240.0, True, "4 GPU-minutes"),
        (12.0, False, "0.2 engine-minutes"),
    ],
)
def test_time_is_said_in_hours_or_minutes(engine_s: float | None, on_gpus: bool, said: str) -> None:
    assert Harvest(1e6, engine_s, on_gpus).time == said


def test_a_part_takes_its_share_of_the_time() -> None:
    day = Harvest(1e6, 3600.0, price=Price(0.5, "USD"))
    part = day.part(2e6)
    assert (part.amount, part.time) == ("2.0 M batch tokens", "2.0 engine-hours")
    assert part.worth == "worth 1.00 USD"
    assert Harvest().part(100).time == "", "no token was timed"
