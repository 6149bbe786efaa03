"""Leases: one dispatcher per engine, and nothing written under a lost one."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy import text

from batch.run import lease
from batch.run.lease import LeaseLost, LeaseTimes
from batch.run.reap import reap
from engine_adapter.client.http import HttpEngineClient
from store.repositories import row as rows
from store.session import Database
from tests.fixtures.batches import (
    PATIENCE_S,
    PATIENT,
    QUICK,
    Bench,
    add_batch,
    line,
    read_batch,
    row_statuses,
    running,
    until,
)
from tests.fixtures.steered_engine import SteeredEngine

URL = "http://127.0.0.1:1"


async def _age(database: Database, more_s: float) -> float:
    """Make the last heartbeat so much older; seconds since it."""
    async with database.unit_of_work() as session:
        age_s = await session.scalar(
            text(
                "UPDATE dispatchers SET heartbeat_at = heartbeat_at - make_interval(secs => :more)"
                " RETURNING extract(epoch FROM clock_timestamp() - heartbeat_at)::float8"
            ),
            {"more": more_s},
        )
    return float(age_s)


async def test_an_engine_has_one_dispatcher(bench: Bench, database: Database) -> None:
    first = await bench.lease(URL)
    assert await lease.acquire(URL, database, bench.clock, PATIENT) is None
    assert await lease.acquire(URL + "2", database, bench.clock, PATIENT) is not None
    await first.give_back()
    assert await lease.acquire(URL, database, bench.clock, PATIENT) is not None


async def test_of_many_at_once_one_gets_it(bench: Bench, database: Database) -> None:
    found = await asyncio.gather(
        *(lease.acquire(URL, database, bench.clock, PATIENT) for _ in range(8))
    )
    assert sum(one is not None for one in found) == 1


async def test_a_silent_heart_loses_the_engine_and_its_rows(
    bench: Bench, database: Database
) -> None:
    batch_id = await add_batch(database, bench.file_store, [line("a"), line("b")])
    silent = await bench.lease(URL)
    async with database.unit_of_work() as session:
        assert len(await rows.claim(session, silent.id, {batch_id: 1})) == 1
    await asyncio.sleep(QUICK.stale_s + 0.1)
    assert await lease.acquire(URL, database, bench.clock, QUICK) is not None
    assert set((await row_statuses(database, batch_id)).values()) == {"pending"}
    with pytest.raises(LeaseLost):
        await silent.renew()
    # Nor can it claim anything more.
    async with database.unit_of_work() as session:
        assert await rows.claim(session, silent.id, {batch_id: 1}) == []


async def test_a_beating_heart_keeps_it(bench: Bench, database: Database) -> None:
    held = await bench.lease(URL, PATIENT)
    await _age(database, 10 * PATIENCE_S)
    keeper = asyncio.ensure_future(held.keep())
    async with asyncio.timeout(PATIENCE_S):
        while await _age(database, 0) > PATIENCE_S / 2:
            await asyncio.sleep(0.02)
    assert await lease.acquire(URL, database, bench.clock, PATIENT) is None
    keeper.cancel()
    with pytest.raises(asyncio.CancelledError):
        await keeper


async def test_reap_ends_stale_leases_of_engines_nobody_serves(
    bench: Bench, database: Database
) -> None:
    batch_id = await add_batch(database, bench.file_store, [line("a")])
    gone = await bench.lease(URL)
    async with database.unit_of_work() as session:
        await rows.claim(session, gone.id, {batch_id: 1})
    assert await reap(database, stale_s=60) == 0
    assert await reap(database, stale_s=0) == 1
    assert await row_statuses(database, batch_id) == {"a": "pending"}


async def test_a_dispatcher_whose_lease_is_stolen_ends_and_writes_nothing(
    bench: Bench, engine: HttpEngineClient, fake_engine: SteeredEngine, database: Database
) -> None:
    fake_engine.held = True
    batch_id = await add_batch(database, bench.file_store, [line(f"r{n}") for n in range(4)])
    robbed = bench.dispatcher(await bench.lease(engine.url), engine)
    async with running(robbed) as task:
        await until(lambda: len(fake_engine.running) == 4)
        # The thief believes the other one dead: a stale limit of nothing.
        thief = await bench.lease(engine.url, LeaseTimes(0.05, stale_s=0.0))
        ending = await task
    assert ending.lease_lost
    assert ending.num_written == 0
    assert set((await row_statuses(database, batch_id)).values()) == {"pending"}
    fake_engine.held = False
    second = await bench.dispatcher(thief, engine).run()
    assert (second.num_written, second.num_fenced) == (4, 0)
    assert (await read_batch(database, batch_id)).num_completed == 4


async def test_two_dispatchers_at_once_answer_every_row_once(
    bench: Bench, engine: HttpEngineClient, fake_engine: SteeredEngine, database: Database
) -> None:
    lines = [line(f"r{n}") for n in range(300)]
    batch_id = await add_batch(database, bench.file_store, lines)
    # Two names for one engine: two leases, both claiming from the same batch.
    one = bench.dispatcher(await bench.lease(engine.url), engine)
    two = bench.dispatcher(await bench.lease(engine.url + "/"), engine)
    endings = await asyncio.gather(one.run(), two.run())
    assert sum(ending.num_written for ending in endings) == 300
    assert [ending.num_fenced for ending in endings] == [0, 0]
    assert len(fake_engine.running) == 0
    batch = await read_batch(database, batch_id)
    assert (batch.status, batch.num_completed, batch.num_results) == ("finalizing", 300, 300)
