"""The sweep finds what waits for a message that never came, and wakes whoever does it."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy import text
from sqlalchemy.exc import ProgrammingError

from batch.finish.cancel import cancel
from batch.queue import DISPATCH, STAGES
from batch.worker.sweep import Sweep, sweep
from engine_adapter.client.http import HttpEngineClient
from store.repositories import engine as engines
from store.repositories import row as rows
from store.session import Database
from tests.fixtures.batches import (
    Bench,
    add_batch,
    add_validating,
    end_window,
    events_of,
    line,
    read_batch,
    row_statuses,
)

URL = "http://127.0.0.1:1"
NOTHING = Sweep()


async def _sweep(bench: Bench, *, stale_s: float = 60.0, urls: tuple[str, ...] = (URL,)) -> Sweep:
    return await sweep(bench.database, bench.queue, urls, stale_s=stale_s)


async def test_an_idle_service_asks_for_nothing(bench: Bench) -> None:
    assert await _sweep(bench) == NOTHING
    assert bench.queue.take() == []


async def test_a_lost_validation_is_asked_for_again(bench: Bench, database: Database) -> None:
    batch_id = await add_validating(database, bench.file_store, [line("a")])
    assert (await _sweep(bench)).stages_due
    assert bench.queue.take() == [STAGES]
    await bench.work()
    assert (await read_batch(database, batch_id)).status == "in_progress"


async def test_a_lost_finalization_is_asked_for_again(
    bench: Bench, engine: HttpEngineClient, database: Database
) -> None:
    batch_id = await add_batch(database, bench.file_store, [line("a")])
    await bench.dispatch(engine)
    bench.queue.take()
    assert (await _sweep(bench)).stages_due
    assert bench.queue.take() == [STAGES]
    await bench.work()
    assert (await read_batch(database, batch_id)).status == "completed"


async def test_thousands_of_waiting_batches_are_one_message(
    bench: Bench, database: Database
) -> None:
    for _ in range(50):
        await add_validating(database, bench.file_store, [line("a")])
    for _ in range(3):
        await _sweep(bench)
        assert bench.queue.take() == [STAGES]


async def test_a_cancelled_batch_is_asked_for_until_it_has_ended(
    bench: Bench, database: Database
) -> None:
    batch_id = await add_batch(database, bench.file_store, [line("a")])
    async with database.unit_of_work() as session:
        await cancel(session, "proj_default", batch_id)
    for _ in range(2):
        assert (await _sweep(bench)).stages_due
    await bench.work()
    assert (await read_batch(database, batch_id)).status == "cancelled"
    assert await _sweep(bench) == NOTHING


async def test_pending_rows_without_a_dispatcher_wake_one(bench: Bench, database: Database) -> None:
    await add_batch(database, bench.file_store, [line("a")])
    assert (await _sweep(bench)).num_idle == 1
    assert bench.queue.take() == [DISPATCH]
    held = await bench.lease(URL)
    assert (await _sweep(bench)).num_idle == 0
    await held.give_back()


async def test_one_is_woken_for_each_engine_without_a_dispatcher(
    bench: Bench, database: Database
) -> None:
    await add_batch(database, bench.file_store, [line("a")])
    held = await bench.lease(URL)
    urls = (URL, "http://127.0.0.1:2", "http://127.0.0.1:3")
    assert (await _sweep(bench, urls=urls)).num_idle == 2
    assert bench.queue.take() == [DISPATCH, DISPATCH]
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
    await asyncio.sleep(0.01)
    found = await _sweep(bench, stale_s=0.0)
    assert (found.num_reaped, found.num_idle) == (2, 1)
    assert set((await row_statuses(database, batch_id)).values()) == {"pending"}
    assert "rows_reaped" in await events_of(database, batch_id)


async def test_the_end_of_a_window_is_found(bench: Bench, database: Database) -> None:
    batch_id = await add_batch(database, bench.file_store, [line("a")])
    await end_window(database, batch_id)
    assert (await _sweep(bench)).stages_due
    await bench.work()
    assert (await read_batch(database, batch_id)).status == "expired"


async def test_many_sweeps_at_once_are_as_good_as_one(bench: Bench, database: Database) -> None:
    batch_id = await add_batch(database, bench.file_store, [line(f"r{n}") for n in range(50)])
    held = await bench.lease(URL)
    async with database.unit_of_work() as session:
        await rows.claim(session, held.id, {batch_id: 50})
    await asyncio.sleep(0.01)
    found = await asyncio.gather(*(_sweep(bench, stale_s=0.0) for _ in range(4)))
    assert sum(one.num_reaped for one in found) == 50


async def test_no_dispatcher_is_asked_for_at_what_is_no_address(
    bench: Bench, database: Database
) -> None:
    await add_batch(database, bench.file_store, [line("a")])
    async with database.unit_of_work() as session:
        await engines.add(session, "http://127.0.0.1:99999")
    assert (await _sweep(bench)).num_idle == 1


@pytest.mark.parametrize(
    ("table", "woken"),
    [
        ("webhook_deliveries", [STAGES, DISPATCH]),
        ("engines", [STAGES]),
        ("dispatchers", [STAGES]),
    ],
)
async def test_a_part_that_fails_takes_no_other_along(
    bench: Bench, database: Database, table: str, woken: list[str]
) -> None:
    await add_validating(database, bench.file_store, [line("a")])
    await add_batch(database, bench.file_store, [line("a")])
    bench.queue.take()
    await rename(database, table, "elsewhere")
    try:
        with pytest.raises(ProgrammingError):
            await _sweep(bench)
    finally:
        await rename(database, "elsewhere", table)
    assert bench.queue.take() == woken
    await _sweep(bench)
    assert bench.queue.take() == [STAGES, DISPATCH]


async def rename(database: Database, table: str, name: str) -> None:
    async with database.unit_of_work() as session:
        await session.execute(text(f"ALTER TABLE {table} RENAME TO {name}"))
