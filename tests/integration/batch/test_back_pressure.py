"""An engine is kept full by its own signals; one that refuses is not stormed."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from sqlalchemy import text

from batch.run.dispatch import DispatchLimits
from engine_adapter.client.http import HttpEngineClient
from store.session import Database
from tests.fakes.engine import FakeEngine, FakeSettings, Refused, flat_error
from tests.fakes.script import Script
from tests.fakes.server import serving
from tests.fixtures.batches import (
    PATIENCE_S,
    Bench,
    add_batch,
    line,
    read_batch,
    running,
    until,
)

MAX_IN_FLIGHT = 256


class Bounded(FakeEngine):
    """Answers 429 beyond so many requests, as SGLang does with a bounded queue."""

    def __init__(self, settings: FakeSettings, room: int) -> None:
        super().__init__(settings)
        self.room = room
        self.num_refused = 0
        self.num_answered = 0
        self.depths: list[int] = []

    def script(self, path: str, body: Mapping[str, Any]) -> Script:
        depth = len(self.waiting) + len(self.running)
        if depth >= self.room:
            self.num_refused += 1
            raise Refused(429, flat_error(429, "The queue is full."))
        self.num_answered += 1
        self.depths.append(depth)
        return super().script(path, body)


async def test_an_engine_with_a_bounded_queue_is_filled_and_not_stormed(
    bench: Bench, database: Database
) -> None:
    engine = Bounded(FakeSettings(latency_s=0.2, max_running=20), room=28)
    batch_id = await add_batch(database, bench.file_store, [line(f"r{n}") for n in range(800)])
    async with serving(engine) as url:
        client = HttpEngineClient(url)
        await bench.dispatch(client, limits=DispatchLimits(max_in_flight=MAX_IN_FLIGHT))
        await client.close()
    batch = await read_batch(database, batch_id)
    assert (batch.num_completed, batch.num_failed) == (800, 0)
    # The first window is a guess, and is refused once; what follows are single probes.
    assert engine.num_refused < 64
    # A call meets many others: the window follows the room, and has not fallen to its least, 4.
    typical = sorted(engine.depths)[len(engine.depths) // 2]
    assert typical >= 10


async def test_an_engine_that_accepts_nothing_is_asked_a_few_times(
    bench: Bench, database: Database
) -> None:
    engine = Bounded(FakeSettings(), room=0)
    batch_id = await add_batch(database, bench.file_store, [line(f"r{n}") for n in range(500)])
    async with serving(engine) as url:
        client = HttpEngineClient(url)
        limits = DispatchLimits(max_in_flight=MAX_IN_FLIGHT)
        dispatcher = bench.dispatcher(await bench.lease(url), client, limits=limits)
        async with running(dispatcher):
            # The first window is a guess, and all of it is refused.
            await until(lambda: engine.num_refused >= MAX_IN_FLIGHT)
            await asyncio.sleep(1.0)
            first_burst = engine.num_refused
            await asyncio.sleep(3.0)
            assert engine.num_refused - first_burst <= 4
            engine.room = 64
        await client.close()
    batch = await read_batch(database, batch_id)
    assert (batch.num_completed, batch.num_failed) == (500, 0)


async def test_refusals_use_up_no_attempts(bench: Bench, database: Database) -> None:
    """Each row is refused more often than it may fail, and then answered."""
    engine = Bounded(FakeSettings(), room=0)
    batch_id = await add_batch(database, bench.file_store, [line("a"), line("b")])
    max_attempts = 1
    async with serving(engine) as url:
        client = HttpEngineClient(url)
        limits = DispatchLimits(max_attempts=max_attempts)
        async with running(bench.dispatcher(await bench.lease(url), client, limits=limits)):
            async with asyncio.timeout(PATIENCE_S):
                while min(await refusals(database, batch_id)) <= max_attempts:
                    await asyncio.sleep(0.05)
            engine.room = 64
        await client.close()
    batch = await read_batch(database, batch_id)
    assert (batch.num_completed, batch.num_failed) == (2, 0)


async def refusals(database: Database, batch_id: str) -> list[int]:
    """Of each row."""
    async with database.unit_of_work() as session:
        found = await session.execute(
            text("SELECT num_refusals FROM batch_rows WHERE batch_id = :id"), {"id": batch_id}
        )
        return [row.num_refusals for row in found]


async def test_what_online_requests_leave_waiting_shrinks_the_window(
    bench: Bench, database: Database
) -> None:
    """The engine's queue is everybody's: its length counts, not whose requests are in it."""
    engine = FakeEngine(FakeSettings(latency_s=0.2, max_running=8))
    await add_batch(database, bench.file_store, [line(f"r{n}") for n in range(2000)])
    drain = asyncio.Event()
    async with serving(engine) as url:
        client = HttpEngineClient(url)
        dispatcher = bench.dispatcher(await bench.lease(url), client, drain=drain)
        async with running(dispatcher):
            await until(lambda: len(engine.waiting) > 40)
            engine.waiting |= {f"online-{n}": asyncio.Event() for n in range(200)}
            await until(lambda: len(engine.waiting) - 200 < 16)
            drain.set()
        await client.close()
