"""The price of online steps follows how much time there is without online requests."""

from __future__ import annotations

import pytest

from engine_adapter.scheduling.budget import HarvestPrice
from tests.unit.engine_adapter.conftest import World


@pytest.fixture(autouse=True)
def offline_work(world: World) -> None:
    world.offline("off")


def watch(price: HarvestPrice, world: World, seconds: int, *, has_online: bool) -> None:
    for _ in range(seconds):
        price.update(world.snapshot(), has_online=has_online)
        world.now_s += 1.0


def test_while_there_is_time_alone_the_price_is_full(world: World) -> None:
    price = HarvestPrice(0.5)
    assert price.value == 1.0
    for _ in range(20):
        watch(price, world, 4, has_online=True)
        watch(price, world, 1, has_online=False)
    assert price.value == 1.0


def test_it_falls_where_online_requests_never_leave_and_comes_back(world: World) -> None:
    price = HarvestPrice(0.25)
    watch(price, world, 600, has_online=True)
    assert price.value == pytest.approx(0.25, abs=0.01)
    watch(price, world, 30, has_online=False)
    assert price.value == 1.0


def test_a_long_silence_counts_as_one_step(world: World) -> None:
    price = HarvestPrice(0.5)
    watch(price, world, 600, has_online=True)
    world.now_s += 100_000.0
    price.update(world.snapshot(), has_online=False)
    assert price.value == pytest.approx(0.5, abs=0.01)


def test_after_the_longest_time_alone_it_falls_within_a_minute(world: World) -> None:
    price = HarvestPrice(0.25)
    watch(price, world, 3600, has_online=False)
    watch(price, world, 20, has_online=True)
    assert price.value == 1.0, "a burst is waited for"
    watch(price, world, 40, has_online=True)
    assert price.value < 0.75


def test_an_idle_engine_is_not_time_in_which_offline_work_ran(world: World) -> None:
    price = HarvestPrice(0.25)
    watch(price, world, 600, has_online=True)
    row = world.roster.finish("off")
    assert row is not None
    watch(price, world, 600, has_online=False)
    world.roster.add(row)
    assert price.value == pytest.approx(0.25, abs=0.01)
