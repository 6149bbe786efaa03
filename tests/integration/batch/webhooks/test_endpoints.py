"""Endpoints that fail, are disabled, come back, or go away while something is on its way."""

from __future__ import annotations

import asyncio

from batch.webhooks import endpoints as managed
from batch.webhooks.names import ReceiverNames
from batch.webhooks.sender import Sender
from batch.webhooks.targets import TargetPolicy
from service.clock import SystemClock
from store.repositories import webhook_endpoint as endpoints
from store.session import Database
from tests.fixtures.receiver import LOOPBACK, receiving
from tests.fixtures.webhooks import (
    add_endpoint,
    deliver_now,
    deliveries_to,
    end_batch,
    pass_time,
    read_endpoint,
)


async def test_beyond_the_horizon_it_is_given_up_and_the_endpoint_disabled(
    database: Database,
) -> None:
    async with receiving(status=500) as receiver:
        endpoint = await add_endpoint(database, receiver.url)
        await end_batch(database)
        await deliver_now(database)
        await pass_time(database, hours=73, age_events=True)
        await end_batch(database)
        await deliver_now(database)
        found = await deliveries_to(database, endpoint.id)
        assert [one.status for one in found] == ["failed", "failed"]
        assert all(one.ended_at for one in found)
        assert (await read_endpoint(database, endpoint.id)).disabled_at is not None
        num = len(receiver.received)
        await end_batch(database)
        await deliver_now(database)
        assert len(receiver.received) == num, "a disabled endpoint is left alone"
        assert len(await deliveries_to(database, endpoint.id)) == 2


async def test_a_test_that_succeeds_enables_again(database: Database) -> None:
    async with receiving(status=500) as receiver:
        endpoint = await add_endpoint(database, receiver.url)
        await _disable(database, endpoint.id)
        clock = SystemClock()
        sender = Sender(TargetPolicy.of(LOOPBACK), clock, ReceiverNames())
        arguments = (database, sender, clock, "proj_default", endpoint.id, "batch.failed")
        assert await managed.test(*arguments) == 500
        assert (await read_endpoint(database, endpoint.id)).disabled_at is not None
        receiver.status = 200
        assert await managed.test(*arguments) == 200
        assert (await read_endpoint(database, endpoint.id)).disabled_at is None
        await end_batch(database)
        await deliver_now(database)
        assert len(receiver.received) == 3


async def _disable(database: Database, endpoint_id: str) -> None:
    async with database.unit_of_work() as session:
        await endpoints.failed(session, endpoint_id, disable_after_s=3600)
    await pass_time(database, hours=2)
    async with database.unit_of_work() as session:
        assert await endpoints.failed(session, endpoint_id, disable_after_s=3600)


async def test_a_failing_endpoint_gets_one_post_at_a_time(database: Database) -> None:
    async with receiving(status=500) as receiver:
        endpoint = await add_endpoint(database, receiver.url)
        await end_batch(database)
        await deliver_now(database)
        receiver.delay_s, receiver.most_in_flight = 0.1, 0
        for _ in range(5):
            await end_batch(database)
        await deliver_now(database)
        assert len(receiver.received) == 6
        assert receiver.most_in_flight == 1
        assert len(await deliveries_to(database, endpoint.id)) == 6


async def test_an_endpoint_that_is_deleted_meanwhile_holds_no_batch_up(database: Database) -> None:
    async with receiving() as receiver:
        gone = await add_endpoint(database, receiver.url)
        stays = await add_endpoint(database, receiver.url)
        async with database.unit_of_work() as deleting:
            await managed.delete(deleting, "proj_default", gone.id)
            await deleting.flush()
            await asyncio.wait_for(end_batch(database), 5)
        assert await deliveries_to(database, gone.id) == []
        assert len(await deliveries_to(database, stays.id)) == 1


async def test_deleting_an_endpoint_ends_what_was_on_its_way(database: Database) -> None:
    async with receiving(delay_s=0.3) as receiver:
        endpoint = await add_endpoint(database, receiver.url)
        await end_batch(database)
        async with asyncio.TaskGroup() as group:
            group.create_task(deliver_now(database))
            await receiver.until(1)
            async with database.unit_of_work() as session:
                await managed.delete(session, "proj_default", endpoint.id)
        assert await deliveries_to(database, endpoint.id) == []
