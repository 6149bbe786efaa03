"""Reservations over buckets in memory: who is refused, what is told, what flows back."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from redis.exceptions import ConnectionError as Unreachable

from api.errors import QuotaExceeded, RateLimited, TokensRateLimited
from gateway.auth.principal import Principal
from gateway.limits.buckets import Buckets, Charge, MemoryBuckets, Taken
from gateway.limits.limiter import NOTHING, RETRY_S, RateLimiter
from gateway.limits.rates import UNSET, Rates
from gateway.observability.metrics import Metrics


class Clock:
    """Seconds that pass when told to."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def us(self) -> int:
        return int(self.now_s * 1_000_000)


class Switched:
    """Buckets behind a connection that can be cut."""

    def __init__(self, behind: Buckets) -> None:
        self.behind = behind
        self.cut = False
        self.num_tries = 0

    async def take(self, charges: Sequence[Charge]) -> Taken:
        self.num_tries += 1
        if self.cut:
            raise Unreachable
        return await self.behind.take(charges)

    async def settle(self, charges: Sequence[Charge]) -> None:
        if self.cut:
            raise Unreachable
        await self.behind.settle(charges)


def principal(key: Rates = UNSET, project: Rates = UNSET, *, key_id: str = "key_1") -> Principal:
    return Principal("proj_1", key_id, key_rates=key, project_rates=project)


def limiter(
    clock: Clock,
    shared: Buckets | None = None,
    *,
    key: Rates = UNSET,
    metrics: Metrics | None = None,
) -> RateLimiter:
    return RateLimiter(
        shared or MemoryBuckets(clock.us),
        metrics or Metrics(),
        key_default=key,
        project_default=UNSET,
        now_s=lambda: clock.now_s,
    )


async def test_without_limits_nothing_is_touched() -> None:
    shared = Switched(MemoryBuckets())
    limits = limiter(Clock(), shared)
    assert await limits.reserve(principal(), 10**9) is NOTHING
    assert shared.num_tries == 0


async def test_requests_run_out_and_come_back() -> None:
    clock = Clock()
    limits, caller = limiter(clock), principal(Rates(3))
    for left in (2, 1, 0):
        reserved = await limits.reserve(caller, 0)
        assert reserved.headers["x-ratelimit-remaining-requests"] == str(left)
    assert reserved.headers["x-ratelimit-limit-requests"] == "3"
    assert reserved.headers["x-ratelimit-reset-requests"] == "1m0s"
    with pytest.raises(RateLimited) as refused:
        await limits.reserve(caller, 0)
    assert (refused.value.type, refused.value.code) == ("requests", "rate_limit_exceeded")
    assert refused.value.headers["retry-after"] == "20"
    assert refused.value.headers["retry-after-ms"] == "20000"
    assert refused.value.headers["x-ratelimit-remaining-requests"] == "0"
    clock.now_s += 20
    await limits.reserve(caller, 0)


async def test_tokens_are_settled_with_what_was_used() -> None:
    limits, caller = limiter(Clock()), principal(Rates(None, 1000))
    reserved = await limits.reserve(caller, 900)
    with pytest.raises(TokensRateLimited) as refused:
        await limits.reserve(caller, 900)
    assert refused.value.type == "tokens"
    limits.settle(reserved, 100)
    await limits.flush()
    again = await limits.reserve(caller, 900)
    assert again.headers["x-ratelimit-remaining-tokens"] == "0"
    limits.settle(again, 1900)
    await limits.flush()
    with pytest.raises(TokensRateLimited) as in_debt:
        await limits.reserve(caller, 1)
    assert 60 <= int(in_debt.value.headers["retry-after"]) <= 61


async def test_the_tighter_limit_is_told() -> None:
    limits = limiter(Clock())
    caller = principal(Rates(100), Rates(2))
    reserved = await limits.reserve(caller, 0)
    assert reserved.headers["x-ratelimit-limit-requests"] == "2"
    await limits.reserve(principal(Rates(100), Rates(2), key_id="key_2"), 0)
    with pytest.raises(RateLimited) as refused:
        await limits.reserve(caller, 0)
    assert "this project" in refused.value.message


async def test_a_refused_request_costs_nothing() -> None:
    limits, caller = limiter(Clock()), principal(Rates(10, 100))
    await limits.reserve(caller, 90)
    for _ in range(20):
        with pytest.raises(TokensRateLimited):
            await limits.reserve(caller, 50)
    reserved = await limits.reserve(caller, 10)
    assert reserved.headers["x-ratelimit-remaining-requests"] == "8"


async def test_what_never_fits_is_not_to_be_repeated() -> None:
    with pytest.raises(TokensRateLimited) as refused:
        await limiter(Clock()).reserve(principal(Rates(None, 100)), 101)
    assert refused.value.headers["x-should-retry"] == "false"
    assert "requested 101" in refused.value.message


@pytest.mark.parametrize("rates", [Rates(0), Rates(None, 0)])
async def test_a_limit_of_zero_is_no_quota(rates: Rates) -> None:
    with pytest.raises(QuotaExceeded) as refused:
        await limiter(Clock()).reserve(principal(UNSET, rates), 1)
    assert (refused.value.type, refused.value.code) == ("insufficient_quota",) * 2
    assert refused.value.headers["x-should-retry"] == "false"


async def test_settings_are_for_keys_without_limits() -> None:
    limits = limiter(Clock(), key=Rates(1))
    await limits.reserve(principal(), 0)
    with pytest.raises(RateLimited):
        await limits.reserve(principal(), 0)
    for _ in range(5):
        await limits.reserve(principal(Rates(5), key_id="key_2"), 0)


async def test_without_valkey_buckets_here_stand_in_half_full() -> None:
    clock, metrics = Clock(), Metrics()
    shared = Switched(MemoryBuckets(clock.us))
    limits, caller = limiter(clock, shared, metrics=metrics), principal(Rates(10))
    shared.cut = True
    for _ in range(5):
        await limits.reserve(caller, 0)
    with pytest.raises(RateLimited):
        await limits.reserve(caller, 0)
    # One try, and then none for a while: a server that hangs costs one wait, not one per request.
    assert shared.num_tries == 1
    assert b"coserve_rate_limit_fallbacks_total 6.0" in metrics.exposition()
    shared.cut = False
    clock.now_s += RETRY_S
    reserved = await limits.reserve(caller, 0)
    assert reserved.headers["x-ratelimit-remaining-requests"] == "9"
    assert shared.num_tries == 2


async def test_a_settlement_that_cannot_be_sent_is_dropped() -> None:
    shared = Switched(MemoryBuckets())
    limits, caller = limiter(Clock(), shared), principal(Rates(None, 100))
    reserved = await limits.reserve(caller, 100)
    shared.cut = True
    limits.settle(reserved, 0)
    await limits.flush()
    shared.cut = False
    with pytest.raises(TokensRateLimited):
        await limits.reserve(caller, 100)
