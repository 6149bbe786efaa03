"""Deliveries with real Postgres and real receivers: each event arrives, and holds nobody up."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import text

from batch.files.memory import MemoryFileStore
from batch.states import BatchStatus
from batch.transition import move
from batch.webhooks import signature
from batch.webhooks.deliver import KEPT_S, collect_deliveries, deliver
from batch.webhooks.names import ReceiverNames
from batch.webhooks.sender import Sender
from batch.webhooks.targets import TargetPolicy
from service.clock import SystemClock
from store.models import WebhookEndpoint
from store.repositories import webhook_delivery as deliveries
from store.session import Database
from tests.fixtures.batches import add_batch, add_project, line, read_batch
from tests.fixtures.receiver import LOOPBACK, receiving
from tests.fixtures.webhooks import (
    AT_ONCE,
    LIMITS,
    add_endpoint,
    deliver_now,
    deliveries_to,
    end_batch,
    pass_time,
    read_endpoint,
)


def _secret(endpoint: WebhookEndpoint) -> str:
    return signature.shown(endpoint.secret)


async def test_the_end_of_a_batch_arrives_once(database: Database) -> None:
    async with receiving() as receiver:
        endpoint = await add_endpoint(database, receiver.url)
        batch_id = await end_batch(database)
        for _ in range(3):
            assert not await deliver_now(database)
        (received,) = receiver.received
        event = received.unwrap(_secret(endpoint))
        assert event.type == "batch.cancelled"
        assert event.data.id == batch_id
        batch = await read_batch(database, batch_id)
        assert batch.cancelled_at is not None
        assert abs(event.created_at - batch.cancelled_at.timestamp()) <= 1
        (delivery,) = await deliveries_to(database, endpoint.id)
        assert (delivery.status, delivery.attempts, delivery.last_status) == ("delivered", 1, 200)
        assert delivery.id == received.webhook_id
        assert delivery.ended_at is not None


async def test_who_hears_of_it(database: Database) -> None:
    await add_project(database, "proj_other")
    async with receiving() as receiver:
        one = await add_endpoint(database, f"{receiver.url}/one")
        two = await add_endpoint(database, f"{receiver.url}/two")
        await add_endpoint(database, f"{receiver.url}/no", event_types=("batch.completed",))
        await add_endpoint(database, f"{receiver.url}/no", project_id="proj_other")
        await end_batch(database)
        await add_endpoint(database, f"{receiver.url}/too-late")
        await deliver_now(database)
        events = {}
        for received in receiver.received:
            owner = {"/hook/one": one, "/hook/two": two}[received.path]
            events[received.path] = received.unwrap(_secret(owner)).id
    assert len(events) == 2
    assert len(set(events.values())) == 1, "one event has one id"
    assert len({received.webhook_id for received in receiver.received}) == 2


@pytest.mark.contract("W-08")
async def test_a_retry_has_the_same_id_and_a_new_timestamp(database: Database) -> None:
    async with receiving(statuses=[500, 301, 429]) as receiver:
        endpoint = await add_endpoint(database, receiver.url)
        batch_id = await end_batch(database)
        await deliver_now(database, schedule=AT_ONCE)
        assert len(receiver.received) == 4
        assert len({one.webhook_id for one in receiver.received}) == 1
        assert len({one.body for one in receiver.received}) == 1
        for one in receiver.received:
            one.unwrap(_secret(endpoint))
        (delivery,) = await deliveries_to(database, endpoint.id)
        assert (delivery.status, delivery.attempts) == ("delivered", 4)
        assert (await read_batch(database, batch_id)).status == "cancelled"
        assert (await read_endpoint(database, endpoint.id)).failing_since_at is None


async def test_a_failure_waits_for_its_time(database: Database) -> None:
    async with receiving(status=503) as receiver:
        endpoint = await add_endpoint(database, receiver.url)
        await end_batch(database)
        assert not await deliver_now(database)
        assert not await deliver_now(database)
        assert len(receiver.received) == 1
        (delivery,) = await deliveries_to(database, endpoint.id)
        assert (delivery.status, delivery.last_status) == ("pending", 503)
        assert delivery.last_error == "status"
        assert 2.4 <= (delivery.next_at - delivery.event_at).total_seconds() <= 10
        assert (await read_endpoint(database, endpoint.id)).failing_since_at is not None
        await pass_time(database, hours=1)
        await deliver_now(database)
        assert len(receiver.received) == 2


@pytest.mark.contract("W-08")
async def test_a_slow_receiver_holds_nobody_up(database: Database) -> None:
    async with receiving(delay_s=60) as slow, receiving() as quick:
        slow_end = await add_endpoint(database, slow.url)
        await add_endpoint(database, quick.url)
        for _ in range(12):
            await end_batch(database)
        limits = replace(LIMITS, max_in_flight=16, per_endpoint=4)
        async with asyncio.TaskGroup() as group:
            delivering = group.create_task(deliver_now(database, limits, timeout_s=50.0))
            await quick.until(12, limit_s=40.0)
            assert slow.in_flight == 4, "not one of them has been answered or given up"
            delivering.cancel()
        found = await deliveries_to(database, slow_end.id)
        assert {one.status for one in found} == {"pending"}
        assert sum(one.attempts for one in found) == 4


async def test_one_deliverer_at_a_time(database: Database) -> None:
    async with receiving(delay_s=0.5) as receiver:
        await add_endpoint(database, receiver.url)
        await end_batch(database)
        async with asyncio.TaskGroup() as group:
            first = group.create_task(deliver_now(database))
            await receiver.until(1)
            assert not await deliver_now(database)
            assert not first.done(), "the second left at once"
        assert len(receiver.received) == 1


async def test_the_outcome_of_an_attempt_that_was_overtaken_is_not_written(
    database: Database,
) -> None:
    endpoint = await add_endpoint(database, "http://127.0.0.1:1/")
    await end_batch(database)

    async def claim() -> list[deliveries.ClaimedDelivery]:
        async with database.unit_of_work() as session:
            return await deliveries.claim(
                session, limit=9, per_endpoint=9, per_project=9, lease_s=60
            )

    (stopped,) = await claim()
    assert await claim() == [], "leased"
    await pass_time(database, hours=1)
    (second,) = await claim()
    assert (second.id, second.attempts) == (stopped.id, stopped.attempts + 1)
    more: dict[str, Any] = {"http_status": 200, "error": None, "next_at": None}
    async with database.unit_of_work() as session:
        assert not await deliveries.settle(session, stopped, **more)
        assert await deliveries.settle(session, second, **more)
        assert not await deliveries.settle(session, second, **more)
    (delivery,) = await deliveries_to(database, endpoint.id)
    assert (delivery.status, delivery.attempts) == ("delivered", 2)


async def test_slow_receivers_of_one_project_hold_no_other_project_up(database: Database) -> None:
    """As many endpoints as would fill every place; what is due of them is older, and never ends."""
    await add_project(database, "proj_other")
    limits = replace(LIMITS, max_in_flight=8, per_endpoint=4)
    async with receiving(delay_s=60) as slow, receiving() as quick:
        for _ in range(4):
            await add_endpoint(database, slow.url)
        await add_endpoint(database, quick.url, project_id="proj_other")
        for _ in range(4):
            await end_batch(database)
        async with asyncio.TaskGroup() as group:
            delivering = group.create_task(deliver_now(database, limits, timeout_s=50.0))
            await slow.until(limits.max_in_flight // 2)
            await end_batch(database, "proj_other")
            await quick.until(1, limit_s=40.0)
            assert slow.in_flight < limits.max_in_flight
            assert slow.in_flight == len(slow.received), "none was answered or given up"
            # What comes while others are under way does not wait for them either.
            for num in (2, 3):
                await end_batch(database, "proj_other")
                await quick.until(num, limit_s=40.0)
            assert slow.in_flight == len(slow.received)
            delivering.cancel()


async def test_everything_due_is_delivered_by_one_deliverer(database: Database) -> None:
    async with receiving() as receiver:
        await add_endpoint(database, receiver.url)
        for _ in range(3):
            await end_batch(database)
        assert not await deliver_now(database, replace(LIMITS, max_in_flight=1))
        assert len(receiver.received) == 3


async def test_a_worker_has_one_deliverer_and_each_worker_its_own(database: Database) -> None:
    await add_project(database, "proj_other")
    async with receiving(delay_s=60.0) as slow, receiving() as quick:
        await add_endpoint(database, slow.url)
        await add_endpoint(database, quick.url, project_id="proj_other")
        async with asyncio.TaskGroup() as group:
            await end_batch(database)
            first = replace(LIMITS, max_in_flight=1)
            delivering = group.create_task(deliver_now(database, first, timeout_s=50.0))
            await slow.until(1)
            await end_batch(database, "proj_other")
            assert not await deliver_now(database)
            assert quick.received == []
            await deliver_now(database, worker="another worker")
            await quick.until(1)
            delivering.cancel()


async def test_an_endpoint_has_its_share_of_all_deliverers_together(database: Database) -> None:
    """A claim that comes while another is being made counts what that one takes."""
    await add_endpoint(database, "http://127.0.0.1:1/")
    for _ in range(4):
        await end_batch(database)
    bounds: dict[str, Any] = {"limit": 9, "per_endpoint": 2, "per_project": 9, "lease_s": 60.0}

    async def claim() -> int:
        async with database.unit_of_work() as session:
            return len(await deliveries.claim(session, **bounds))

    async with asyncio.TaskGroup() as group, database.unit_of_work() as session:
        assert len(await deliveries.claim(session, **bounds)) == 2
        other = group.create_task(claim())
        await asyncio.sleep(0.2)
    assert other.result() == 0


async def test_a_draining_worker_claims_nothing(database: Database) -> None:
    async with receiving() as receiver:
        await add_endpoint(database, receiver.url)
        await end_batch(database)
        drain = asyncio.Event()
        drain.set()
        clock = SystemClock()
        sender = Sender(TargetPolicy.of(LOOPBACK), clock, ReceiverNames())
        assert not await deliver(database, sender, worker="a worker", drain=drain, limits=LIMITS)
        assert receiver.received == []


async def test_old_deliveries_are_forgotten_pending_ones_never(database: Database) -> None:
    async with receiving() as receiver:
        endpoint = await add_endpoint(database, receiver.url)
        await end_batch(database)
        await deliver_now(database)
        await end_batch(database)
        assert await collect_deliveries(database) == 0
        await pass_time(database, hours=KEPT_S / 3600 + 1)
        assert await collect_deliveries(database) == 1
        assert [one.status for one in await deliveries_to(database, endpoint.id)] == ["pending"]


async def test_an_event_is_written_once_per_endpoint(database: Database) -> None:
    endpoint = await add_endpoint(database, "http://127.0.0.1:1/")
    batch_id = await end_batch(database)
    async with database.unit_of_work() as session:
        again = await deliveries.publish(
            session,
            {batch_id: "evt_again"},
            status="cancelled",
            event_type="batch.cancelled",
        )
    assert again == 0
    assert len(await deliveries_to(database, endpoint.id)) == 1


async def test_no_delivery_without_the_end_of_its_batch(database: Database) -> None:
    """They are one transaction: rolled back together."""
    endpoint = await add_endpoint(database, "http://127.0.0.1:1/")
    file_store = MemoryFileStore()
    batch_id = await add_batch(database, file_store, [line("a")])
    async with database.unit_of_work() as session:
        assert await move(session, batch_id, BatchStatus.EXPIRED)
        assert len(await deliveries.recent(session, [endpoint.id], per_endpoint=9)) == 1
        await session.rollback()
    assert await deliveries_to(database, endpoint.id) == []
    assert (await read_batch(database, batch_id)).status == "in_progress"


async def test_one_whose_outcome_is_refused_holds_up_no_other(database: Database) -> None:
    async with receiving() as receiver:
        bad = await add_endpoint(database, receiver.url)
        good = await add_endpoint(database, receiver.url)
        await end_batch(database)
        async with database.unit_of_work() as session:
            await session.execute(
                text(
                    "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS"
                    " 'BEGIN RAISE EXCEPTION ''not expected''; END'"
                )
            )
            await session.execute(
                text(
                    "CREATE TRIGGER refuse BEFORE UPDATE ON webhook_deliveries FOR EACH ROW"
                    " WHEN (NEW.status = 'delivered'"
                    f" AND NEW.endpoint_id = '{bad.id}') EXECUTE FUNCTION refuse()"
                )
            )
        try:
            assert not await deliver_now(database)
            assert len(receiver.received) == 2
            assert [one.ended_at for one in await deliveries_to(database, bad.id)] == [None]
            assert [one.status for one in await deliveries_to(database, good.id)] == ["delivered"]
        finally:
            async with database.unit_of_work() as session:
                await session.execute(text("DROP FUNCTION refuse CASCADE"))
