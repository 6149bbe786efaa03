"""Several engines, each with its dispatcher: shares, deaths, returns, drains, other models."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sqlalchemy import text

from batch.run.dispatch import Dispatcher, DispatchLimits, Ending
from engine_adapter.client.http import HttpEngineClient
from store.repositories import engine as engines
from store.session import Database
from tests.fakes.engine import FakeSettings
from tests.fakes.server import serving
from tests.fixtures.batches import (
    MODEL,
    PATIENCE_S,
    Bench,
    add_batch,
    line,
    read_batch,
    row_statuses,
    until,
    until_completed,
)
from tests.fixtures.engine_process import engine_process
from tests.fixtures.steered_engine import SteeredEngine


@asynccontextmanager
async def dispatching(
    bench: Bench, url: str, limits: DispatchLimits | None = None
) -> AsyncIterator[asyncio.Task[Ending]]:
    """A dispatcher for the engine at `url`; it must end by itself."""
    client = HttpEngineClient(url)
    try:
        dispatcher: Dispatcher = bench.dispatcher(await bench.lease(url), client, limits=limits)
        async with asyncio.TaskGroup() as group:
            yield group.create_task(dispatcher.run())
    finally:
        await client.close()


async def leased_at(database: Database, url: str) -> int:
    async with database.unit_of_work() as session:
        found = await session.scalar(
            text(
                "SELECT count(*) FROM batch_rows r JOIN dispatchers d ON d.id = r.dispatcher_id"
                " WHERE d.engine_url = :url AND r.status = 'leased'"
            ),
            {"url": url},
        )
    return int(found or 0)


async def test_a_faster_engine_runs_more_of_a_batch(bench: Bench, database: Database) -> None:
    lines = [line(f"r{n}", f"r{n}") for n in range(360)]
    batch_id = await add_batch(database, bench.file_store, lines)
    quick, slow, slower = (
        SteeredEngine(FakeSettings(latency_s=latency_s, max_running=4))
        for latency_s in (0.05, 0.15, 0.45)
    )
    limits = DispatchLimits(max_in_flight=8)
    async with (
        serving(quick) as a,
        serving(slow) as b,
        serving(slower) as c,
        dispatching(bench, a, limits),
        dispatching(bench, b, limits),
        dispatching(bench, c, limits),
    ):
        pass
    assert (await read_batch(database, batch_id)).num_completed == len(lines)
    shares = [one.asked.total() for one in (quick, slow, slower)]
    assert shares[0] > shares[1] > shares[2] > 0
    asked = quick.asked + slow.asked + slower.asked
    assert set(asked.values()) == {1}, "a row ran twice"


async def test_an_engine_killed_in_the_middle_of_a_batch_and_its_return(
    bench: Bench, database: Database
) -> None:
    lines = [line(f"r{n}", f"r{n}") for n in range(600)]
    batch_id = await add_batch(database, bench.file_store, lines)
    others = [SteeredEngine(FakeSettings(latency_s=0.02, max_running=16)) for _ in range(2)]
    limits = DispatchLimits(max_in_flight=32)

    def hold(held: bool) -> None:
        for other in others:
            other.held = held

    async def until_leased(url: str, *, some: bool) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while (await leased_at(database, url) > 0) is not some:
                await asyncio.sleep(0.02)

    async with (
        engine_process(MODEL, latency_s=0.5, max_running=16) as mortal,
        serving(others[0]) as a,
        serving(others[1]) as b,
    ):
        hold(True)  # so that rows are left for the mortal one, before its death and after
        async with (
            dispatching(bench, mortal.url, limits),
            dispatching(bench, a, limits),
            dispatching(bench, b, limits),
        ):
            await until_completed(database, batch_id, 1)
            await until_leased(mortal.url, some=True)
            await mortal.kill()
            await until_leased(mortal.url, some=False)
            hold(False)
            await until(lambda: sum(other.asked.total() for other in others) >= 200)
            hold(True)
            await mortal.start()
            await until_leased(mortal.url, some=True)
            hold(False)
    batch = await read_batch(database, batch_id)
    assert (batch.num_completed, batch.num_failed) == (len(lines), 0)
    assert (await row_statuses(database, batch_id)).keys() == {f"r{n}" for n in range(len(lines))}
    assert (others[0].asked + others[1].asked).most_common(1)[0][1] == 1, "a row ran twice"


async def test_each_engine_runs_the_batches_of_its_own_model(
    bench: Bench, database: Database
) -> None:
    mine = await add_batch(database, bench.file_store, [line(f"a{n}", f"a{n}") for n in range(30)])
    other = await add_batch(database, bench.file_store, [line(f"b{n}", f"b{n}") for n in range(30)])
    async with database.unit_of_work() as session:
        await session.execute(
            text("UPDATE batches SET model = 'other-model' WHERE id = :id"), {"id": other}
        )
    first = SteeredEngine(FakeSettings(latency_s=0.02))
    second = SteeredEngine(FakeSettings(latency_s=0.02, model="other-model"))
    async with (
        serving(first) as a,
        serving(second) as b,
        dispatching(bench, a),
        dispatching(bench, b),
    ):
        pass
    assert set(first.asked) == {f"a{n}" for n in range(30)}
    assert set(second.asked) == {f"b{n}" for n in range(30)}
    for batch_id in (mine, other):
        assert (await read_batch(database, batch_id)).num_completed == 30


async def test_a_drained_engine_gets_nothing_new_and_its_rows_end(
    bench: Bench, database: Database
) -> None:
    lines = [line(f"r{n}", f"r{n} fake:tokens=4 fake:token_ms=200") for n in range(400)]
    batch_id = await add_batch(database, bench.file_store, lines)
    drained, stays = (SteeredEngine(FakeSettings(max_running=32)) for _ in range(2))
    limits = DispatchLimits(max_in_flight=32)
    async with serving(drained) as a, serving(stays) as b:
        async with database.unit_of_work() as session:
            await engines.add(session, a)
        async with dispatching(bench, b, limits):
            async with dispatching(bench, a, limits) as task:
                await until(lambda: len(drained.running) == 32)
                async with database.unit_of_work() as session:
                    assert await engines.drain(session, a)
                ending = await task
            num_asked = drained.asked.total()
            assert not drained.running
            assert ending.num_released == 0, "what ran could finish"
            assert ending.num_written == num_asked
            assert ending.more_work
        assert drained.asked.total() == num_asked
    batch = await read_batch(database, batch_id)
    assert (batch.num_completed, batch.num_failed) == (len(lines), 0)
    assert set((drained.asked + stays.asked).values()) == {1}


async def test_the_engines_in_use(database: Database) -> None:
    """ENGINE_URLS and the registry together, but for what is draining."""
    async with database.unit_of_work() as session:
        for url in ("http://two", "http://three", "http://four"):
            await engines.add(session, url)
        await engines.drain(session, "http://three")
        await engines.remove(session, "http://four")
        in_use = await engines.in_use(session, ["http://one", "http://two"])
    assert [(one.url, one.draining) for one in in_use] == [
        ("http://one", False),
        ("http://two", False),
        ("http://three", True),
    ]
