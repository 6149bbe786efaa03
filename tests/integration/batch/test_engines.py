"""Several engines, each with its dispatcher: shares, deaths, returns, drains, other models."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from sqlalchemy import text

from batch.dispatch import Dispatcher, DispatchLimits, Ending
from engine_adapter.client.fake_engine import FakeEngine, FakeSettings
from engine_adapter.client.fake_script import Script, prompt_text
from engine_adapter.client.fake_server import serving
from engine_adapter.client.http import HttpEngineClient
from store.repositories import engine as engines
from store.session import Database
from tests.fixtures.batches import (
    MODEL,
    Bench,
    add_batch,
    line,
    read_batch,
    row_statuses,
    until,
)
from tests.fixtures.engine_process import engine_process

MOVE_LIMIT_S = 10.0


class Recorder(FakeEngine):
    """Remembers how often it was asked for each prompt's first word."""

    def __init__(self, settings: FakeSettings) -> None:
        super().__init__(settings)
        self.asked: Counter[str] = Counter()

    def script(self, path: str, body: Mapping[str, Any]) -> Script:
        self.asked[prompt_text(path, body).split()[0]] += 1
        return super().script(path, body)


@asynccontextmanager
async def dispatching(
    bench: Bench, url: str, limits: DispatchLimits | None = None
) -> AsyncIterator[asyncio.Task[Ending]]:
    """A dispatcher for the engine at `url`; it must end by itself."""
    client = HttpEngineClient(url)
    dispatcher: Dispatcher = bench.dispatcher(await bench.lease(url), client, limits=limits)
    async with asyncio.TaskGroup() as group:
        yield group.create_task(dispatcher.run())
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
    lines = [line(f"r{n}", f"r{n}") for n in range(900)]
    batch_id = await add_batch(database, bench.file_store, lines)
    quick, slow, slower = (
        Recorder(FakeSettings(latency_s=latency_s, max_running=8))
        for latency_s in (0.02, 0.06, 0.18)
    )
    limits = DispatchLimits(max_in_flight=16)
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
    lines = [line(f"r{n}", f"r{n}") for n in range(1200)]
    batch_id = await add_batch(database, bench.file_store, lines)
    others = [Recorder(FakeSettings(latency_s=0.1, max_running=16)) for _ in range(2)]
    limits = DispatchLimits(max_in_flight=32)
    async with (
        engine_process(MODEL, latency_s=0.1, max_running=16) as mortal,
        serving(others[0]) as a,
        serving(others[1]) as b,
        dispatching(bench, mortal.url, limits),
        dispatching(bench, a, limits),
        dispatching(bench, b, limits),
    ):
        async with asyncio.timeout(20):
            while (await read_batch(database, batch_id)).num_completed < 100:
                await asyncio.sleep(0.02)
        assert await leased_at(database, mortal.url) > 0, "a kill with no rows there proves nothing"
        killed_s = time.monotonic()
        await mortal.kill()
        async with asyncio.timeout(MOVE_LIMIT_S):
            while await leased_at(database, mortal.url):
                await asyncio.sleep(0.02)
            while len(set(others[0].asked) | set(others[1].asked)) < 400:
                await asyncio.sleep(0.02)
        assert time.monotonic() - killed_s < MOVE_LIMIT_S
        await mortal.start()
        async with asyncio.timeout(MOVE_LIMIT_S):
            while not await leased_at(database, mortal.url):
                assert (await read_batch(database, batch_id)).num_completed < len(lines), "too late"
                await asyncio.sleep(0.01)
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
    first = Recorder(FakeSettings(latency_s=0.02))
    second = Recorder(FakeSettings(latency_s=0.02, model="other-model"))
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
    drained, stays = (Recorder(FakeSettings(max_running=32)) for _ in range(2))
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
