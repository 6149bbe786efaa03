"""Who gets the places of an engine that is full: nothing ends there while these tests look."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from batch.run.dispatch import Dispatcher, DispatchLimits
from batch.steer import prioritize
from engine_adapter.client.http import HttpEngineClient
from store.models import DEFAULT_PROJECT_ID
from tests.fixtures.batches import (
    PATIENT,
    Bench,
    add_batch,
    add_project,
    line,
    row_statuses,
    running,
    until,
)
from tests.fixtures.steered_engine import SteeredEngine

SLOTS = 64  # of the fixture's engine
QUEUE = 16
LIMITS = DispatchLimits(max_in_flight=SLOTS + QUEUE, max_attempts=1)


@asynccontextmanager
async def full_engine(
    bench: Bench, engine: HttpEngineClient, fake: SteeredEngine
) -> AsyncIterator[tuple[str, Dispatcher]]:
    """An engine that is full of one batch and holds it; let go at the end. The batch's id,
    and its dispatcher."""
    lines = [line(f"big{n}", f"big{n}") for n in range(200)]
    big = await add_batch(bench.database, bench.file_store, lines)
    fake.held = True
    dispatcher = bench.dispatcher(await bench.lease(engine.url, PATIENT), engine, limits=LIMITS)
    async with running(dispatcher):
        await until(lambda: (len(fake.running), len(fake.waiting)) == (SLOTS, QUEUE))
        yield big, dispatcher
        assert len(fake.running) == SLOTS, "what the engine has begun is left alone"
        fake.held = False
    assert set((await row_statuses(bench.database, big)).values()) == {"succeeded"}


async def test_a_newcomer_does_not_wait_behind_a_full_engine(
    bench: Bench, engine: HttpEngineClient, fake_engine: SteeredEngine
) -> None:
    await add_project(bench.database, "proj_other")
    async with full_engine(bench, engine, fake_engine):
        small = await add_batch(
            bench.database, bench.file_store, [line("one", "small")], project_id="proj_other"
        )
        await until(lambda: fake_engine.asked["small"])
    assert await row_statuses(bench.database, small) == {"one": "succeeded"}
    # One row made room, and was asked for again.
    assert sorted(fake_engine.asked.values())[-2:] == [1, 2]


async def test_a_newcomer_does_not_wait_for_the_rows_that_make_room_to_be_gone(
    bench: Bench, engine: HttpEngineClient, fake_engine: SteeredEngine
) -> None:
    await add_project(bench.database, "proj_other")
    async with full_engine(bench, engine, fake_engine) as (_, dispatcher):
        fake_engine.busy = True
        await add_batch(
            bench.database, bench.file_store, [line("one", "small")], project_id="proj_other"
        )
        await until(lambda: fake_engine.asked["small"])
        assert dispatcher.counts().num_handed_back == 0
        fake_engine.busy = False


@pytest.mark.contract("E-16")
async def test_a_small_batch_does_not_wait_behind_a_large_one_of_its_project(
    bench: Bench, engine: HttpEngineClient, fake_engine: SteeredEngine
) -> None:
    async with full_engine(bench, engine, fake_engine):
        await add_batch(
            bench.database, bench.file_store, [line(f"s{n}", "small") for n in range(8)]
        )
        await until(lambda: fake_engine.asked["small"] == 8)


async def test_a_batch_that_is_preferred_now_takes_the_queue(
    bench: Bench, engine: HttpEngineClient, fake_engine: SteeredEngine
) -> None:
    lines = [line(f"late{n}", "late") for n in range(100)]
    async with full_engine(bench, engine, fake_engine) as (big, _):
        async with bench.database.unit_of_work() as session:
            await prioritize(session, DEFAULT_PROJECT_ID, big, -5)
        await add_batch(bench.database, bench.file_store, lines)
        await until(lambda: fake_engine.asked["late"] >= QUEUE)
