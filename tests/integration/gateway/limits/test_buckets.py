"""One suite for every place where buckets are kept: in a process, in Valkey, and leased."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from gateway.limits.buckets import (
    LOST_BACKLOG_US,
    MAX_BACKLOG_US,
    PERIOD_US,
    Buckets,
    Charge,
    MemoryBuckets,
    cost_us,
)
from gateway.limits.prepaid import PrepaidBuckets
from gateway.limits.valkey import SINCE_KEY, ValkeyBuckets
from service.broker import Broker

PATIENCE_S = 30.0
SLACK_US = 2_000_000
"""How much flows back while a test runs, at most."""


@pytest.fixture
async def client(broker_url: str) -> AsyncIterator[Redis]:
    async with Redis.from_url(broker_url) as made:
        yield made


@pytest.fixture
async def shared(broker_url: str) -> AsyncIterator[ValkeyBuckets]:
    made = ValkeyBuckets(Broker(broker_url), timeout_s=PATIENCE_S)
    yield made
    await made.close()


@pytest.fixture(params=["memory", "valkey", "leased"])
async def buckets(request: pytest.FixtureRequest, client: Redis, shared: ValkeyBuckets) -> Buckets:
    """Full buckets whose records were not lost."""
    if request.param == "memory":
        return MemoryBuckets()
    await client.set(SINCE_KEY, 1)
    return PrepaidBuckets(shared) if request.param == "leased" else shared


def near(found_us: int, wanted_us: int) -> bool:
    return wanted_us - SLACK_US <= found_us <= wanted_us


async def test_a_limit_is_reached_and_not_passed(buckets: Buckets) -> None:
    charge = [Charge("k", cost_us(1, 7))]
    for i in range(1, 8):
        taken = await buckets.take(charge)
        assert taken.allowed
        assert near(taken.backlogs_us[0], i * PERIOD_US // 7)
    refused = await buckets.take(charge)
    assert not refused.allowed
    assert near(refused.backlogs_us[0], PERIOD_US)


async def test_all_charges_are_taken_or_none(buckets: Buckets) -> None:
    narrow, wide = Charge("narrow", PERIOD_US), Charge("wide", PERIOD_US // 10)
    assert (await buckets.take([narrow, wide])).allowed
    assert not (await buckets.take([wide, narrow])).allowed
    left = await buckets.take([Charge("wide", 0)])
    assert near(left.backlogs_us[0], PERIOD_US // 10)


async def test_what_is_given_back_can_be_taken_again(buckets: Buckets) -> None:
    whole = [Charge("k", PERIOD_US)]
    assert (await buckets.take(whole)).allowed
    assert not (await buckets.take(whole)).allowed
    await buckets.settle([Charge("k", -PERIOD_US)])
    assert (await buckets.take(whole)).allowed


async def test_giving_back_never_makes_more_than_full(buckets: Buckets) -> None:
    await buckets.settle([Charge("k", -3 * PERIOD_US)])
    taken = await buckets.take([Charge("k", PERIOD_US)])
    assert near(taken.backlogs_us[0], PERIOD_US)
    assert not (await buckets.take([Charge("k", PERIOD_US)])).allowed


async def test_a_debt_is_paid_first_and_is_bounded(buckets: Buckets) -> None:
    await buckets.settle([Charge("k", 10 * PERIOD_US)])
    refused = await buckets.take([Charge("k", 1)])
    assert not refused.allowed
    assert near(refused.backlogs_us[0], MAX_BACKLOG_US)


async def test_time_fills_a_bucket(buckets: Buckets) -> None:
    await buckets.take([Charge("k", 400_000)])
    await asyncio.sleep(0.45)
    assert (await buckets.take([Charge("k", 0)])).backlogs_us == (0,)
    await buckets.take([Charge("k", PERIOD_US)])
    await asyncio.sleep(0.1)
    assert (await buckets.take([Charge("k", 90_000)])).allowed


async def test_many_at_once_never_get_more_than_the_limit(buckets: Buckets) -> None:
    charge = [Charge("k", cost_us(1, 20)), Charge("p", cost_us(1, 30))]
    taken = await asyncio.gather(*(buckets.take(charge) for _ in range(60)))
    assert sum(one.allowed for one in taken) == 20


@pytest.mark.parametrize("kind", ["memory", "valkey"])
async def test_after_a_loss_buckets_are_half_full(kind: str, shared: ValkeyBuckets) -> None:
    made: Buckets = MemoryBuckets(lost=True) if kind == "memory" else shared
    half = [Charge("k", PERIOD_US // 2)]
    assert not (await made.take([Charge("other", PERIOD_US)])).allowed
    assert (await made.take(half)).allowed
    assert not (await made.take(half)).allowed


async def test_half_full_lasts_half_a_minute(client: Redis, shared: ValkeyBuckets) -> None:
    seconds, micros = await client.time()
    since = seconds * 1_000_000 + micros - LOST_BACKLOG_US
    await client.set(SINCE_KEY, since)
    assert (await shared.take([Charge("k", PERIOD_US)])).allowed


async def test_a_lost_state_is_noticed_by_a_running_client(
    client: Redis, shared: ValkeyBuckets
) -> None:
    await client.set(SINCE_KEY, 1)
    assert (await shared.take([Charge("k", PERIOD_US)])).allowed
    await client.flushall()
    await client.script_flush()
    assert (await shared.take([Charge("k", PERIOD_US // 2)])).allowed
    assert not (await shared.take([Charge("k", PERIOD_US // 2)])).allowed


async def test_a_full_bucket_takes_no_room(client: Redis, shared: ValkeyBuckets) -> None:
    await client.set(SINCE_KEY, 1)
    await shared.take([Charge("k", 300_000)])
    assert 0 < await client.pttl("k") <= 300
    await shared.settle([Charge("k", -300_000)])
    assert await client.keys("k") == []
