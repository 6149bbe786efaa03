"""Limits over a restart of the server that keeps them: with its data, and without."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from api.errors import RateLimited
from coserve.local import valkey
from coserve.local.part import ManagedProcess
from gateway.auth.principal import Principal
from gateway.limits.buckets import MAX_BACKLOG_US, Charge
from gateway.limits.limiter import RETRY_S, RateLimiter
from gateway.limits.rates import UNSET, Rates
from gateway.limits.valkey import ValkeyBuckets
from gateway.observability.metrics import Metrics
from service.broker import Broker
from tests.fixtures.servers import wait_for

PATIENCE_S = 10.0
TWO_A_MINUTE = Principal("project", "key", key_rates=Rates(requests_per_minute=2))
"""Half a minute flows back between one request and the next: longer than any of these tests."""


@contextmanager
def running(files: valkey.ValkeyFiles) -> Iterator[None]:
    process = ManagedProcess(valkey.command(files, files.directory / "log"))
    try:
        wait_for(lambda: valkey.is_ready(files), process)
        yield
    finally:
        process.stop()


@pytest.fixture
async def made() -> AsyncIterator[Callable[[str], ValkeyBuckets]]:
    buckets: list[ValkeyBuckets] = []

    def make(url: str) -> ValkeyBuckets:
        buckets.append(ValkeyBuckets(Broker(url), timeout_s=PATIENCE_S))
        return buckets[-1]

    yield make
    for one in buckets:
        await one.close()


async def passes(limiter: RateLimiter) -> bool:
    try:
        await limiter.reserve(TWO_A_MINUTE, 1)
    except RateLimited:
        return False
    return True


async def test_a_restart_that_keeps_its_data_changes_nothing(
    tmp_path: Path, made: Callable[[str], ValkeyBuckets]
) -> None:
    files = valkey.prepare(tmp_path, durable=True)
    buckets = made(files.url)
    with running(files):
        await buckets.settle([Charge("k", MAX_BACKLOG_US)])
    with running(files):
        # The same client goes on, over a connection that the server has closed meanwhile.
        assert not (await buckets.take([Charge("k", 1)])).allowed


async def test_a_restart_without_data_gives_half_a_minute_at_most(
    tmp_path: Path, made: Callable[[str], ValkeyBuckets]
) -> None:
    files, clock_s = valkey.prepare(tmp_path, durable=False), [0.0]
    limiter = RateLimiter(
        made(files.url), Metrics(), key_default=UNSET, project_default=UNSET,
        now_s=lambda: clock_s[0],
    )  # fmt: skip
    with running(files):
        assert await passes(limiter), "a new server: half of it may have been used"
        assert not await passes(limiter)
    assert await passes(limiter), "away: half a minute's worth is given here"
    assert not await passes(limiter)
    with running(files):
        assert not await passes(limiter), "it is left alone for a while"
        clock_s[0] += RETRY_S
        assert await passes(limiter), "back and empty: half a minute's worth once more"
        assert not await passes(limiter)
