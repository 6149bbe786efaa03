"""Latencies beside offline work and apart from it, and the pauses that make them comparable."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest

from engine_adapter.runtime_settings import RuntimeSettings
from engine_adapter.scheduling.distribution import EDGES_S
from engine_adapter.scheduling.isolation import (
    DEFAULT_EVERY_S,
    PAUSE_S,
    Isolation,
    Pauses,
    Tokens,
)
from engine_adapter.scheduling.latency import PolynomialModel
from engine_adapter.scheduling.request import Phase
from engine_adapter.scheduling.targets import Slo
from engine_adapter.sglang.counters import Counters
from engine_adapter.sglang.planner import Planner

if TYPE_CHECKING:
    from tests.unit.engine_adapter.conftest import World

SLO = Slo(ttft_s=1.0, tbt_s=0.1)


def num(figures: list[float]) -> float:
    return sum(figures[3:])


def test_a_latency_is_beside_what_ended_after_it_began() -> None:
    seen = Isolation()
    seen.tokens(Tokens(10.5, arrived_at_s=[10.0]), SLO)
    seen.offline_ran(10.6)
    seen.tokens(Tokens(10.7, last_at_s=[10.5]), SLO)
    seen.tokens(Tokens(10.75, last_at_s=[10.7]), SLO)
    seen.tokens(Tokens(12.0, arrived_at_s=[10.55]), SLO)
    plain = seen.to_plain()
    assert {(of, kind): num(plain[of][kind]) for of in plain for kind in plain[of]} == {
        ("ttft", "beside"): 1,
        ("ttft", "apart"): 1,
        ("tbt", "beside"): 1,
        ("tbt", "apart"): 1,
    }
    met, missed, sum_s, *counts = plain["ttft"]["beside"]
    assert (met, missed) == (0, 1)
    assert sum_s == pytest.approx(1.45)
    assert len(counts) == len(EDGES_S) + 1
    assert plain["tbt"]["beside"][:2] == [0, 1]
    assert plain["tbt"]["apart"][:2] == [1, 0]


def busy(world: World) -> None:
    world.online("chat", phase=Phase.DECODE)
    world.offline("off", phase=Phase.DECODE)
    world.offline("next", prompt=40)


def is_paused(pauses: Pauses, world: World, now_s: float) -> bool:
    world.now_s = now_s
    return not pauses.apply(world.snapshot()).offline_ready.requests


def test_pauses_are_a_second_in_five_hundred(world: World) -> None:
    busy(world)
    pauses = Pauses(on=True)
    step_s = 0.05
    num_paused = sum(
        is_paused(pauses, world, 100.0 + n * step_s)
        for n in range(int(4 * DEFAULT_EVERY_S / step_s))
    )
    assert pauses.num == 3
    assert pauses.paused_s <= 3 * (PAUSE_S + step_s)
    assert 3 * 0.9 * PAUSE_S / step_s <= num_paused <= 3 * (PAUSE_S / step_s + 1)


def test_in_a_pause_offline_requests_are_parked_and_nothing_else_changes(
    world: World, model: PolynomialModel
) -> None:
    busy(world)
    pauses = Pauses(on=True)
    planner = Planner(RuntimeSettings(), Counters(), model, measuring=False)
    world.now_s = 0.0
    assert set(planner.begin(pauses.apply(world.snapshot())).decode) == {"chat", "off"}
    world.now_s = DEFAULT_EVERY_S
    plan = planner.begin(pauses.apply(world.snapshot()))
    assert (plan.decode, plan.prefill, plan.parks, plan.retracts) == (("chat",), (), ("off",), ())
    world.now_s = DEFAULT_EVERY_S + PAUSE_S
    assert set(planner.begin(pauses.apply(world.snapshot())).decode) == {"chat", "off"}
    assert planner._counters.rejected_plans == 0


def test_their_share_can_be_set(world: World) -> None:
    busy(world)
    pauses = Pauses(on=True, share=0.05)
    assert pauses.to_plain()["every_s"] == pytest.approx(20.0)
    for n in range(int(101 / 0.05)):
        is_paused(pauses, world, n * 0.05)
    assert pauses.num == 5


@pytest.mark.parametrize("step_s", [0.05, 0.3, 0.7, 4.0])
def test_they_take_no_more_than_their_share_however_long_steps_are(
    world: World, step_s: float
) -> None:
    busy(world)
    pauses = Pauses(on=True, share=0.2)
    shares = []
    for n in range(int(600 / step_s)):
        was, num_before = pauses.to_plain(), pauses.num
        is_paused(pauses, world, n * step_s)
        if pauses.num > num_before:
            shares.append(was["paused_s"] / (n * step_s))
    assert all(share <= 0.2 for share in shares)
    took_s = math.ceil(PAUSE_S / step_s) * step_s
    assert pauses.num >= 600 / (took_s / 0.2 + step_s) - 1, "and no fewer than that allows"
    assert pauses.to_plain()["over_s"] == pytest.approx(n * step_s)


def test_switched_off_there_are_none(world: World) -> None:
    busy(world)
    pauses = Pauses(on=False)
    assert not any(is_paused(pauses, world, n * DEFAULT_EVERY_S) for n in range(5))


def test_no_pause_begins_where_there_is_nothing_to_compare(world: World) -> None:
    world.offline("off", phase=Phase.DECODE)
    pauses = Pauses(on=True)
    assert not any(is_paused(pauses, world, n * DEFAULT_EVERY_S) for n in range(5))


@pytest.mark.parametrize("short_of", ["pages", "slots"])
def test_a_pause_ends_when_online_requests_may_need_what_offline_requests_hold(
    world: World, short_of: str
) -> None:
    busy(world)
    pauses = Pauses(on=True)
    is_paused(pauses, world, 0.0)
    assert is_paused(pauses, world, DEFAULT_EVERY_S)
    if short_of == "pages":
        world.have(free_pages=10, evictable_pages=0)
    else:
        world.have(free_slots=0)
        world.online("arrived", prompt=10)
    assert not is_paused(pauses, world, DEFAULT_EVERY_S + 0.1)
    assert pauses.paused_s == pytest.approx(0.1)
