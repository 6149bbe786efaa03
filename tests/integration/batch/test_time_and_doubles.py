"""Clocks that jump and work that is asked for twice: nothing lost, nothing twice.

The database's clock judges leases, back-offs and windows (`tests/fixtures/clock_jump.py`).
"""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

import pytest
from sqlalchemy import text

from batch.finish.finalize import finalize
from batch.intake.validate import validate
from batch.queue import STAGES
from batch.run import lease
from batch.run.dispatch import Ending
from batch.run.lease import LeaseLost, LeaseTimes
from batch.run.reap import reap
from batch.states import BatchStatus
from batch.worker.sweep import sweep
from engine_adapter.client.http import HttpEngineClient
from service.clock import SystemClock
from store.repositories import row as rows
from store.repositories.row import PutBack
from store.session import Database
from tests.fixtures.batches import (
    PATIENCE_S,
    PATIENT,
    QUICK,
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
from tests.fixtures.clock_jump import jump
from tests.fixtures.steered_engine import SteeredEngine

URL = "http://127.0.0.1:1"
HOUR_S = 3600.0
STOPPED = LeaseTimes(heartbeat_s=4.0, stale_s=0.5)
"""A heart that does not beat while others look: as of a process that was stopped."""


async def _jump(database: Database, jump_s: float) -> None:
    """Let the database's clock jump, forward or (negative) back."""
    async with database.unit_of_work() as session:
        await jump(lambda statement: session.execute(text(statement)), jump_s)


class JumpingClock(SystemClock):
    """The host's clock, set an hour on and an hour back again at every reading."""

    def __init__(self) -> None:
        self._num_read = 0
        self._slept_s = 0.0

    def now(self) -> datetime:
        self._num_read += 1
        return super().now() + timedelta(seconds=HOUR_S * (self._num_read % 3 - 1))

    def monotonic(self) -> float:
        """Never back, but on by minutes at a time, as after a machine was suspended."""
        self._slept_s += 300.0
        return super().monotonic() + self._slept_s


async def _complete(bench: Bench, database: Database, batch_id: str, num_rows: int) -> None:
    """Everything of the batch is there once."""
    if (await read_batch(database, batch_id)).status == BatchStatus.FINALIZING:
        await finalize(database, bench.file_store, batch_id)
    batch = await read_batch(database, batch_id)
    assert (batch.status, batch.num_completed, batch.num_results) == (
        "completed", num_rows, num_rows,
    )  # fmt: skip
    lines = await file_lines(bench.file_store, batch.output_file_id)
    assert sorted(str(one["custom_id"]) for one in lines) == sorted(
        f"r{n}" for n in range(num_rows)
    )
    ends = [name for name in await events_of(database, batch_id) if name == "completed"]
    assert len(ends) == 1


async def test_the_hosts_clock_jumps(
    bench: Bench, engine: HttpEngineClient, database: Database
) -> None:
    lines = [line(f"r{n}", "fake:tokens=2 fake:token_ms=5") for n in range(120)]
    batch_id = await add_batch(database, bench.file_store, lines)
    bench.clock = JumpingClock()
    ending = await bench.dispatch(engine)
    assert (ending.num_written, ending.num_fenced, ending.lease_lost) == (120, 0, False)
    await _complete(bench, database, batch_id, 120)


@pytest.mark.parametrize("jump_s", [HOUR_S, -HOUR_S])
async def test_the_databases_clock_jumps_over_a_dead_dispatcher(
    bench: Bench, database: Database, jump_s: float
) -> None:
    batch_id = await add_batch(database, bench.file_store, [line("a"), line("b")])
    dead = await bench.lease(URL)
    async with database.unit_of_work() as session:
        assert len(await rows.claim(session, dead.id, {batch_id: 2})) == 2
    await _jump(database, jump_s)
    assert await reap(database, stale_s=QUICK.stale_s) == 2
    assert await lease.acquire(URL, database, bench.clock, QUICK) is not None
    with pytest.raises(LeaseLost):
        await dead.renew()


@pytest.mark.parametrize("jump_s", [HOUR_S, -HOUR_S])
async def test_a_dispatcher_that_lives_is_taken_for_dead_until_its_next_beat_only(
    bench: Bench, database: Database, jump_s: float
) -> None:
    alive = await bench.lease(URL)
    await _jump(database, jump_s)
    await alive.renew()
    assert await lease.acquire(URL, database, bench.clock, PATIENT) is None


async def test_a_lost_message_is_found_although_the_clock_was_set_back(
    bench: Bench, database: Database
) -> None:
    batch_id = await add_validating(database, bench.file_store, [line("a")])
    await _jump(database, -HOUR_S)
    await sweep(database, bench.queue, (URL,))
    assert STAGES in bench.queue.take()
    assert await bench.due() == [batch_id]


async def test_a_back_off_does_not_grow_when_the_clock_is_set_back(
    bench: Bench, database: Database
) -> None:
    batch_id = await add_batch(database, bench.file_store, [line("a")])
    held = await bench.lease(URL)
    async with database.unit_of_work() as session:
        (row,) = await rows.claim(session, held.id, {batch_id: 1})
        await rows.put_back(session, held.id, [PutBack(row.id, delay_s=60.0)])
    async with database.unit_of_work() as session:
        assert await rows.claim(session, held.id, {batch_id: 1}) == []
    await _jump(database, -HOUR_S)
    async with database.unit_of_work() as session:
        assert len(await rows.claim(session, held.id, {batch_id: 1})) == 1


async def test_jumps_and_sweeps_at_once_beside_a_busy_dispatcher(
    bench: Bench, engine: HttpEngineClient, fake_engine: SteeredEngine, database: Database
) -> None:
    """A jump may cost the dispatcher its lease; another one goes on; each row has one end."""
    num_rows = 300
    lines = [line(f"r{n}") for n in range(num_rows)]
    batch_id = await add_batch(database, bench.file_store, lines)
    fake_engine.held = True
    endings: list[Ending] = []
    over = asyncio.Event()

    async def dispatch() -> None:
        while (await read_batch(database, batch_id)).status == BatchStatus.IN_PROGRESS:
            held = await lease.acquire(engine.url, database, bench.clock, QUICK)
            if held is not None:
                endings.append(await bench.dispatcher(held, engine).run())
            await asyncio.sleep(0.05)
        over.set()

    async def sweep_without_end() -> None:
        while not over.is_set():
            await sweep(database, bench.queue, (engine.url,), stale_s=QUICK.stale_s)
            await asyncio.sleep(0.03)

    async def jump_about() -> None:
        await until(lambda: len(fake_engine.running) > 20)
        while not endings:  # a beat may come before any sweep
            for jump_s in (HOUR_S, -HOUR_S):
                await _jump(database, jump_s)
                await asyncio.sleep(0.1)
        fake_engine.held = False

    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        for work in (dispatch(), sweep_without_end(), sweep_without_end(), jump_about()):
            group.create_task(work)
    assert endings[0].lease_lost
    assert sum(ending.num_written for ending in endings) == num_rows
    await _complete(bench, database, batch_id, num_rows)


async def test_a_dispatcher_that_was_stopped_for_long_is_refused_and_its_tries_are_counted(
    bench: Bench, engine: HttpEngineClient, fake_engine: SteeredEngine, database: Database
) -> None:
    num_rows = 40
    lines = [line(f"r{n}") for n in range(num_rows)]
    batch_id = await add_batch(database, bench.file_store, lines)
    fake_engine.held = True
    held = await lease.acquire(engine.url, database, bench.clock, STOPPED)
    assert held is not None
    async with running(bench.dispatcher(held, engine)) as stopped:
        await until(lambda: len(fake_engine.running) == num_rows)
        num_reaped = 0
        while not num_reaped:  # a beat may come in between
            await _jump(database, HOUR_S)
            num_reaped = await reap(database, stale_s=PATIENT.stale_s)
        assert num_reaped == num_rows
        # What the stopped one has at the engine lands now: not one result of it is taken.
        fake_engine.held = False
        ending = await stopped
    assert (ending.num_written, ending.num_fenced) == (0, num_rows)
    assert ending.lease_lost
    assert set((await row_statuses(database, batch_id)).values()) == {"pending"}
    second = await bench.dispatch(engine)
    assert (second.num_written, second.num_fenced) == (num_rows, 0)
    await _complete(bench, database, batch_id, num_rows)


async def test_every_stage_asked_for_four_times_at_once(
    bench: Bench, engine: HttpEngineClient, database: Database
) -> None:
    num_rows = 50
    lines = [line(f"r{n}") for n in range(num_rows)]
    batch_id = await add_validating(database, bench.file_store, lines)
    found = await asyncio.gather(
        *(validate(database, bench.file_store, batch_id) for _ in range(4))
    )
    assert [one for one in found if one] == [BatchStatus.IN_PROGRESS]
    assert len(await row_statuses(database, batch_id)) == num_rows
    held = await asyncio.gather(
        *(lease.acquire(engine.url, database, bench.clock, PATIENT) for _ in range(4))
    )
    (only,) = [one for one in held if one]
    await bench.dispatcher(only, engine).run()
    ends = await asyncio.gather(*(finalize(database, bench.file_store, batch_id) for _ in range(4)))
    assert [one for one in ends if one] == [BatchStatus.COMPLETED]
    await _complete(bench, database, batch_id, num_rows)


async def test_two_workers_at_once_end_a_window_once(bench: Bench, database: Database) -> None:
    lines = [line(f"r{n}") for n in range(20)]
    batch_id = await add_batch(database, bench.file_store, lines)
    await end_window(database, batch_id)
    await asyncio.gather(*(sweep(database, bench.queue, (URL,)) for _ in range(2)))
    assert await bench.due() == [batch_id]
    assert sum(await asyncio.gather(*(bench.work() for _ in range(2)))) == 1
    batch = await read_batch(database, batch_id)
    assert (batch.num_failed, batch.num_results) == (20, 20)
    errors = await file_lines(bench.file_store, batch.error_file_id)
    assert len({one["custom_id"] for one in errors}) == len(errors) == 20
