from __future__ import annotations

from typing import TYPE_CHECKING

from engine_adapter.scheduling.budget import OnlineArrivals

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
