"""Pausing, resuming and preferring live batches, before a real dispatcher."""

from __future__ import annotations

import asyncio

import pytest

from batch.dispatch import DispatchLimits
from batch.errors import BatchNotFound
from batch.finalize import finalize
from batch.intake import REFRESH_S
from batch.states import BatchStatus
from batch.steer import STEERABLE, pause, prioritize, resume
from batch.transition import move
from engine_adapter.client.http import HttpEngineClient
from engine_adapter.wire.errors import Conflict, InvalidRequest
from store.models import DEFAULT_PROJECT_ID, Batch
from store.session import Database
from tests.fixtures.batches import (
    Bench,
    add_batch,
    add_validating,
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


async def test_a_pause_keeps_every_line_and_resuming_answers_them(
    bench: Bench, engine: HttpEngineClient, fake_engine: SteeredEngine
) -> None:
    lines = [line(f"r{n}", "fake:tokens=2 fake:token_ms=20") for n in range(90)]
    batch_id = await add_batch(bench.database, bench.file_store, lines)
    held = await bench.lease(engine.url)
    limits = DispatchLimits(max_in_flight=8)
    async with running(bench.dispatcher(held, engine, limits=limits)):
        await until(lambda: fake_engine.asked.total() >= 30)
        fake_engine.held = True
        await steer_to(bench.database, batch_id, paused=True)
        await asyncio.sleep(2 * REFRESH_S)
        fake_engine.held = False
    # With nothing to claim the dispatcher has ended; rows in flight were answered, not thrown away.
    batch = await read_batch(bench.database, batch_id)
    statuses = list((await row_statuses(bench.database, batch_id)).values())
    assert batch.status == "in_progress"
    assert 30 <= batch.num_completed < 90
    assert set(statuses) == {"succeeded", "pending"}
    assert fake_engine.asked.total() == batch.num_completed
    await bench.dispatch(engine)
    assert fake_engine.asked.total() == batch.num_completed

    await steer_to(bench.database, batch_id, paused=False)
    await bench.dispatch(engine)
    assert fake_engine.asked.total() == 90, "no line ran twice"
    assert await finalize(bench.database, bench.file_store, batch_id) is BatchStatus.COMPLETED
    batch = await read_batch(bench.database, batch_id)
    answered = await file_lines(bench.file_store, batch.output_file_id)
    assert sorted(str(one["custom_id"]) for one in answered) == sorted(f"r{n}" for n in range(90))
    history = await events_of(bench.database, batch_id)
    assert [one for one in history if one in ("paused", "resumed")] == ["paused", "resumed"]


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
