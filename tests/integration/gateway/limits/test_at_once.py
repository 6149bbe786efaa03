"""Requests at once over several gateways, on a real Valkey."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from api.errors import RateLimited
from coserve.local.ports import free_port
from gateway.auth.principal import Principal
from gateway.limits.at_once import Place, RequestsAtOnce
from gateway.observability.metrics import Metrics
from service.broker import Broker
from store.types import new_id


@asynccontextmanager
async def gateway(url: str, hold_s: float = 30) -> AsyncIterator[RequestsAtOnce]:
    made = RequestsAtOnce(Broker(url), Metrics(), hold_s=hold_s)
    try:
        yield made
    finally:
        await made.close()


@pytest.fixture
def project() -> Principal:
    return Principal(new_id("proj_"), new_id("key_"), concurrent_requests=2)


async def until_free(at: RequestsAtOnce, project: Principal) -> Place:
    async with asyncio.timeout(30):
        while True:
            try:
                return await at.enter(project)
            except RateLimited:
                await asyncio.sleep(0.05)


async def test_two_gateways_count_together(broker_url: str, project: Principal) -> None:
    async with gateway(broker_url) as one, gateway(broker_url) as other:
        first, _ = await one.enter(project), await other.enter(project)
        for each in (one, other):
            with pytest.raises(RateLimited, match="2 requests in flight"):
                await each.enter(project)
        await other.enter(replace(project, project_id=new_id("proj_")))
        assert await one.in_flight(project.project_id) == 2
        first.leave()
        await one.flush()
        await other.enter(project)
        with pytest.raises(RateLimited):
            await one.enter(project)


async def test_what_a_killed_gateway_had_comes_free(broker_url: str, project: Principal) -> None:
    async with gateway(broker_url, hold_s=0.3) as killed, gateway(broker_url) as other:
        await killed.enter(project)
        await other.enter(project)
        await until_free(other, project)
        with pytest.raises(RateLimited):
            await other.enter(project)


async def test_what_is_served_on_stays_counted(broker_url: str, project: Principal) -> None:
    once = replace(project, concurrent_requests=1)
    async with gateway(broker_url) as one, gateway(broker_url, hold_s=0.001) as short:
        held = await short.enter(once)
        short._hold_s = 30
        await short.beat()
        with pytest.raises(RateLimited):
            await one.enter(once)
        held.leave()
        await short.flush()
        await one.enter(once)


async def test_without_valkey_everybody_counts_alone(project: Principal) -> None:
    metrics = Metrics()
    away = RequestsAtOnce(Broker(f"redis://127.0.0.1:{free_port()}/0"), metrics)
    for _ in range(3):
        places = [await away.enter(project) for _ in range(2)]
        with pytest.raises(RateLimited, match="2 requests in flight"):
            await away.enter(project)
        for place in places:
            place.leave()
    await away.flush()
    assert b"coserve_rate_limit_fallbacks_total 9.0" in metrics.exposition()
    await away.close()


async def test_what_began_without_valkey_is_told_when_it_is_back(
    broker_url: str, project: Principal
) -> None:
    once = replace(project, concurrent_requests=1)
    async with gateway(broker_url) as one, gateway(broker_url) as other:
        one._retry_at_s = float("inf")  # as if Valkey had not answered a moment ago
        held = await one.enter(once)
        one._retry_at_s = 0
        with pytest.raises(RateLimited):
            await one.enter(once)  # Valkey knows of none yet, but this gateway does
        await one.flush()
        await one.beat()
        with pytest.raises(RateLimited):
            await other.enter(once)
        held.leave()
        await one.flush()
        await other.enter(once)
