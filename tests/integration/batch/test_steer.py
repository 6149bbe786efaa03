"""Pausing, resuming and preferring live batches, before a real dispatcher."""

from __future__ import annotations

import asyncio

import pytest

from api.batch_errors import BatchNotFound
from api.errors import Conflict, InvalidRequest
from batch.finish.finalize import finalize
from batch.run.dispatch import DispatchLimits
from batch.states import BatchStatus
from batch.steer import STEERABLE, pause, prioritize, resume
from batch.transition import move
from engine_adapter.client.http import HttpEngineClient
from store.models import DEFAULT_PROJECT_ID, Batch
from store.session import Database
from tests.fixtures.batches import (
    PATIENT,
    Bench,
    add_batch,
    add_validating,
    end_window,
    events_of,
    file_lines,
    line,
    read_batch,
    row_statuses,
    running,
    until,
)
from tests.fixtures.steered_engine import SteeredEngine


async def steer_to(database: Database, batch_id: str, *, paused: bool) -> Batch:
    async with database.unit_of_work() as session:
        verb = pause if paused else resume
        return await verb(session, DEFAULT_PROJECT_ID, batch_id)


async def test_a_pause_takes_rows_off_the_engine_and_resuming_answers_them(
    bench: Bench, engine: HttpEngineClient, fake_engine: SteeredEngine
) -> None:
    lines = [line(f"r{n}", "fake:tokens=2 fake:token_ms=20") for n in range(90)]
    batch_id = await add_batch(bench.database, bench.file_store, lines)
    held = await bench.lease(engine.url, PATIENT)
    limits = DispatchLimits(max_in_flight=8, max_attempts=1)
    async with running(bench.dispatcher(held, engine, limits=limits)):
        await until(lambda: fake_engine.asked.total() >= 30)
        fake_engine.held = True
        await until(lambda: len(fake_engine.running) == 8)
        await steer_to(bench.database, batch_id, paused=True)
        # They would never end by themselves.
        await until(lambda: not fake_engine.running and not fake_engine.waiting)
        fake_engine.held = False
    batch = await read_batch(bench.database, batch_id)
    statuses = list((await row_statuses(bench.database, batch_id)).values())
    assert batch.status == "in_progress"
    assert batch.num_completed < 90
    assert set(statuses) == {"succeeded", "pending"}
    num_asked = fake_engine.asked.total()
    await bench.dispatch(engine)
    assert fake_engine.asked.total() == num_asked

    await steer_to(bench.database, batch_id, paused=False)
    # One attempt is all that a row has here: those that were taken off have had none.
    await bench.dispatch(engine, limits=limits)
    assert fake_engine.asked.total() == num_asked + 90 - batch.num_completed
    assert await finalize(bench.database, bench.file_store, batch_id) is BatchStatus.COMPLETED
    batch = await read_batch(bench.database, batch_id)
    answered = await file_lines(bench.file_store, batch.output_file_id)
    assert sorted(str(one["custom_id"]) for one in answered) == sorted(f"r{n}" for n in range(90))
    history = await events_of(bench.database, batch_id)
    assert [one for one in history if one in ("paused", "resumed")] == ["paused", "resumed"]


async def test_a_paused_batch_does_not_end(bench: Bench, engine: HttpEngineClient) -> None:
    """Its last rows are answered in the moment of the pause: it waits for its owner."""
    batch_id = await add_batch(bench.database, bench.file_store, [line("a"), line("b")])
    held = await bench.lease(engine.url, PATIENT)
    dispatcher = bench.dispatcher(held, engine)
    async with bench.database.unit_of_work() as blocker:
        # Results of the batch are written after the pause, which has its lock first.
        await pause(blocker, DEFAULT_PROJECT_ID, batch_id)
        await blocker.flush()
        task = asyncio.ensure_future(dispatcher.run())
        await until(lambda: len(dispatcher.results) == 2)
    await task
    batch = await read_batch(bench.database, batch_id)
    assert (batch.status, batch.num_completed) == ("in_progress", 2)
    assert await bench.due() == []
    assert await finalize(bench.database, bench.file_store, batch_id) is None

    await steer_to(bench.database, batch_id, paused=False)
    assert await finalize(bench.database, bench.file_store, batch_id) is BatchStatus.COMPLETED


async def test_a_paused_batch_ends_with_its_window(bench: Bench) -> None:
    batch_id = await add_batch(bench.database, bench.file_store, [line("a")])
    await steer_to(bench.database, batch_id, paused=True)
    await end_window(bench.database, batch_id)
    assert await finalize(bench.database, bench.file_store, batch_id) is BatchStatus.EXPIRED


async def test_asking_twice_changes_nothing(bench: Bench) -> None:
    batch_id = await add_validating(bench.database, bench.file_store, [line("a")])
    first = await steer_to(bench.database, batch_id, paused=True)
    second = await steer_to(bench.database, batch_id, paused=True)
    assert first.paused_at is not None
    assert second.paused_at == first.paused_at
    for _ in range(2):
        assert (await steer_to(bench.database, batch_id, paused=False)).paused_at is None
    assert await events_of(bench.database, batch_id) == ["created", "paused", "resumed"]


async def test_the_preferred_batch_of_a_project_goes_first(
    bench: Bench, engine: HttpEngineClient, fake_engine: SteeredEngine
) -> None:
    first, second = ([line(f"{word}{n}", word) for n in range(300)] for word in "ab")
    await add_batch(bench.database, bench.file_store, first)
    later = await add_batch(bench.database, bench.file_store, second)
    async with bench.database.unit_of_work() as session:
        batch = await prioritize(session, DEFAULT_PROJECT_ID, later, 5)
        assert batch.priority == 5
        await prioritize(session, DEFAULT_PROJECT_ID, later, 5)
    await bench.dispatch(engine)
    words = [word for word, _ in fake_engine.calls]
    assert len(words) == 600
    last_of_the_preferred = max(at for at, word in enumerate(words) if word == "b")
    assert words[:last_of_the_preferred].count("a") < 250
    assert (await events_of(bench.database, later)).count("priority_changed") == 1


@pytest.mark.parametrize("priority", [-101, 101])
async def test_priorities_have_bounds(bench: Bench, priority: int) -> None:
    batch_id = await add_validating(bench.database, bench.file_store, [line("a")])
    async with bench.database.unit_of_work() as session:
        with pytest.raises(InvalidRequest) as refused:
            await prioritize(session, DEFAULT_PROJECT_ID, batch_id, priority)
    assert refused.value.param == "priority"


async def test_what_is_over_or_another_projects_cannot_be_steered(bench: Bench) -> None:
    batch_id = await add_validating(bench.database, bench.file_store, [line("a")])
    async with bench.database.unit_of_work() as session:
        with pytest.raises(BatchNotFound):
            await pause(session, "proj_other", batch_id)
        await move(session, batch_id, BatchStatus.CANCELLING)
    for paused in (True, False):
        with pytest.raises(Conflict) as refused:
            await steer_to(bench.database, batch_id, paused=paused)
        assert refused.value.current == "cancelling"
        assert refused.value.expected == tuple(sorted(STEERABLE))
