"""Leases over buckets in memory: trips that are spared, and limits that hold among gateways."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from gateway.limits.buckets import PERIOD_US, Charge, MemoryBuckets, Taken, cost_us
from gateway.limits.prepaid import AHEAD, BUSY_US, FRESH_US, MOST_US, PrepaidBuckets


class Shared:
    """Shared buckets that count their trips, under a clock that passes when told to."""

    def __init__(self) -> None:
        self.now_us = 1_000_000_000
        self.num_trips = 0
        self._behind = MemoryBuckets(lambda: self.now_us)

    async def take(self, charges: Sequence[Charge]) -> Taken:
        self.num_trips += 1
        return await self._behind.take(charges)

    async def settle(self, charges: Sequence[Charge]) -> None:
        await self._behind.settle(charges)

    def gateway(self) -> PrepaidBuckets:
        return PrepaidBuckets(self, lambda: self.now_us)


async def test_a_busy_caller_waits_for_few_trips() -> None:
    shared = Shared()
    gateway = shared.gateway()
    charges = [Charge("requests", cost_us(1, 60_000)), Charge("tokens", cost_us(300, 10_000_000))]
    for _ in range(2 + 10 * (AHEAD + 1)):
        assert (await gateway.take(charges)).allowed
        shared.now_us += 1_000
    assert shared.num_trips == 2 + 10


async def test_what_is_told_is_as_without_paying_ahead() -> None:
    shared, plain = Shared(), MemoryBuckets(lambda: 0)
    gateway = shared.gateway()
    charge = [Charge("k", cost_us(1, 600))]
    for _ in range(100):
        assert await gateway.take(charge) == await plain.take(charge)


async def test_near_its_limit_a_caller_gets_all_of_it() -> None:
    shared = Shared()
    gateway = shared.gateway()
    charge = [Charge("k", cost_us(1, 600))]
    allowed = [(await gateway.take(charge)).allowed for _ in range(700)]
    assert allowed == [True] * 600 + [False] * 100


async def test_what_was_prepaid_long_ago_is_given_back() -> None:
    shared = Shared()
    gateway, other = shared.gateway(), shared.gateway()
    charge = [Charge("k", cost_us(1, 6000))]
    for _ in range(2):
        await gateway.take(charge)
    shared.now_us += FRESH_US
    before = shared.num_trips
    assert (await gateway.take(charge)).backlogs_us == (0,)
    assert shared.num_trips == before + 1
    shared.now_us += BUSY_US
    assert (await other.take([Charge("k", 0)])).backlogs_us == (0,)


async def test_a_debt_ends_what_is_prepaid() -> None:
    shared = Shared()
    gateway = shared.gateway()
    charge = [Charge("k", cost_us(1, 6000))]
    for _ in range(2):
        await gateway.take(charge)
    await gateway.settle([Charge("k", 2 * PERIOD_US)])
    assert not (await gateway.take(charge)).allowed


async def test_a_refusal_keeps_what_was_held() -> None:
    shared = Shared()
    gateway = shared.gateway()
    wide, narrow = Charge("wide", cost_us(1, 6000)), Charge("narrow", PERIOD_US)
    for _ in range(2):
        await gateway.take([wide])
    assert (await gateway.take([narrow])).allowed
    before = await gateway.take([Charge("wide", 0)])
    assert not (await gateway.take([wide, narrow])).allowed
    assert await gateway.take([Charge("wide", 0)]) == before


@given(
    limit=st.integers(5, 5_000),
    steps=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 400), st.integers(1, 60))),
)
def test_gateways_together_keep_the_limit(limit: int, steps: list[tuple[int, int, int]]) -> None:
    """Never more than the bucket, what flowed back, and what each gateway has prepaid."""

    async def drawn() -> None:
        shared = Shared()
        gateways = [shared.gateway() for _ in range(3)]
        began_us, spent_us = shared.now_us, 0
        charge = Charge("k", cost_us(1, limit))
        for number, pause_ms, calls in steps:
            shared.now_us += pause_ms * 1000
            for _ in range(calls):
                if (await gateways[number].take([charge])).allowed:
                    spent_us += charge.cost_us
            flowed_us = shared.now_us - began_us
            assert spent_us <= PERIOD_US + flowed_us + MOST_US * len(gateways)

    asyncio.run(drawn())
