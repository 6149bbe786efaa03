"""The sweep finds whatever waits for a message that never came."""

from __future__ import annotations

import asyncio

from sqlalchemy import text

from batch.cancel import cancel
from batch.queue import DISPATCH, FINALIZE, VALIDATE
from batch.sweep import Sweep, sweep
from engine_adapter.client.http import HttpEngineClient
from store.repositories import row as rows
from store.session import Database
from tests.fixtures.batches import (
    Bench,
    add_batch,
    add_validating,
    end_window,
    events_of,
    line,
    row_statuses,
)

URL = "http://127.0.0.1:1"
NOTHING = Sweep(0, 0, 0, 0, woken=False)


async def _sweep(bench: Bench, *, waiting_s: float = 0.0, stale_s: float = 60.0) -> Sweep:
    await asyncio.sleep(0.01)
    return await sweep(bench.database, bench.queue, (URL,), stale_s=stale_s, waiting_s=waiting_s)


async def test_an_idle_service_asks_for_nothing(bench: Bench) -> None:
    assert await _sweep(bench) == NOTHING
    assert bench.queue.take() == []


async def test_a_lost_validation_is_asked_for_again(bench: Bench, database: Database) -> None:
    batch_id = await add_validating(database, bench.file_store, [line("a")])
    assert await _sweep(bench, waiting_s=60) == NOTHING
    assert (await _sweep(bench)).num_validate == 1
    assert bench.queue.take() == [(VALIDATE, batch_id)]


async def test_a_lost_finalization_is_asked_for_again(
    bench: Bench, engine: HttpEngineClient, database: Database
) -> None:
    batch_id = await add_batch(database, bench.file_store, [line("a")])
    await bench.dispatch(engine)
    bench.queue.take()
    assert (await _sweep(bench)).num_finalize == 1
    assert bench.queue.take() == [(FINALIZE, batch_id)]


async def test_a_cancelled_batch_is_asked_for_until_it_has_ended(
    bench: Bench, database: Database
) -> None:
    batch_id = await add_batch(database, bench.file_store, [line("a")])
    async with database.unit_of_work() as session:
        await cancel(session, "proj_default", batch_id)
    await _sweep(bench)
    await _sweep(bench)
    assert bench.queue.take() == [(FINALIZE, batch_id)] * 2


async def test_pending_rows_without_a_dispatcher_wake_one(bench: Bench, database: Database) -> None:
    await add_batch(database, bench.file_store, [line("a")])
    assert (await _sweep(bench)).woken
    assert bench.queue.take() == [(DISPATCH, URL)]
    held = await bench.lease(URL)
    assert not (await _sweep(bench)).woken
    await held.give_back()


async def test_a_paused_batch_wakes_nobody(bench: Bench, database: Database) -> None:
    await add_batch(database, bench.file_store, [line("a")])
    async with database.unit_of_work() as session:
        await session.execute(text("UPDATE batches SET paused_at = now()"))
    assert await _sweep(bench) == NOTHING


async def test_rows_of_a_dead_dispatcher_come_back(bench: Bench, database: Database) -> None:
    batch_id = await add_batch(database, bench.file_store, [line("a"), line("b")])
    held = await bench.lease(URL)
    async with database.unit_of_work() as session:
        await rows.claim(session, held.id, {batch_id: 2})
    assert (await _sweep(bench)).num_reaped == 0
    found = await _sweep(bench, stale_s=0.0)
    assert (found.num_reaped, found.woken) == (2, True)
    assert set((await row_statuses(database, batch_id)).values()) == {"pending"}
    assert "rows_reaped" in await events_of(database, batch_id)


async def test_the_end_of_a_window_is_found(bench: Bench, database: Database) -> None:
    batch_id = await add_batch(database, bench.file_store, [line("a")])
    await end_window(database, batch_id)
    assert (await _sweep(bench)).num_expired == 1
    assert (FINALIZE, batch_id) in bench.queue.take()


async def test_many_sweeps_at_once_are_as_good_as_one(bench: Bench, database: Database) -> None:
    batch_id = await add_batch(database, bench.file_store, [line(f"r{n}") for n in range(50)])
    held = await bench.lease(URL)
    async with database.unit_of_work() as session:
        await rows.claim(session, held.id, {batch_id: 50})
    found = await asyncio.gather(*(_sweep(bench, stale_s=0.0) for _ in range(4)))
    assert sum(one.num_reaped for one in found) == 50
