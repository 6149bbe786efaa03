from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest

from engine_adapter.scheduling.budget import RATE_HORIZON_S, OnlineArrivals

if TYPE_CHECKING:
    from tests.unit.engine_adapter.conftest import World


def test_the_typical_prompt_is_a_mean_of_what_arrived(world: World) -> None:
    arrivals = OnlineArrivals(256)
    assert arrivals.prompt_tokens == 256
    world.online("a", prompt=100)
    arrivals.update(world.snapshot())
    arrivals.update(world.snapshot())  # seen already
    assert arrivals.prompt_tokens == 100
    world.online("b", prompt=200)
    arrivals.update(world.snapshot())
    assert arrivals.prompt_tokens == 150


def test_the_rate_follows_arrivals_and_falls_without_them(world: World) -> None:
    arrivals = OnlineArrivals(256)
    arrivals.update(world.snapshot())
    assert arrivals.per_s == 0.0
    for second in range(1, 601):
        world.now_s = float(second)
        if second % 4 == 0:
            world.online(f"r{second}", prompt=100)
        arrivals.update(world.snapshot())
    assert arrivals.per_s == pytest.approx(0.25, rel=0.05)
    world.now_s += RATE_HORIZON_S
    before = arrivals.per_s
    arrivals.update(world.snapshot())
    assert arrivals.per_s == pytest.approx(before / math.e)
