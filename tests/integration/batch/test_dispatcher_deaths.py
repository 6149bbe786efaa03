"""A line that ends its dispatcher each time it is sent fails alone, after few deaths."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from sqlalchemy import text

from batch.finish.finalize import finalize
from batch.run import lease
from batch.run.lease import LeaseTimes
from batch.run.quarantine import DISPATCHER_CODE, MAX_DISPATCHER_LOSSES
from batch.run.reap import reap
from batch.states import BatchStatus
from engine_adapter.client.base import EngineCall, EngineReply
from store.repositories import row as rows
from store.session import Database
from tests.fakes.client import FakeEngine, FakeEngineClient
from tests.fakes.script import prompt_text
from tests.fixtures.batches import Bench, add_batch, file_lines, line, read_batch

NUM_INNOCENT = 40
TIMES = LeaseTimes(heartbeat_s=0.05, stale_s=2.0)


class Killed(BaseException):
    """What a kill -9 leaves behind: no row is put back, no lease is given back."""


class Deadly(FakeEngineClient):
    """Sending one certain prompt is the end of whoever sends it."""

    async def call(self, call: EngineCall) -> EngineReply:
        if prompt_text(call.path, call.body) == "deadly":
            raise Killed
        return await super().call(call)


async def _dispatch_until_dead(bench: Bench, client: FakeEngineClient) -> bool:
    """One dispatcher, as soon as the one before counts as gone; whether it died."""
    while True:
        held = await lease.acquire(client.url, bench.database, bench.clock, TIMES)
        if held is not None:
            break
        await asyncio.sleep(0.1)
    died = False
    try:
        await bench.dispatcher(held, client).run()
    except* Killed:
        died = True
    return died


async def test_a_line_that_ends_its_dispatcher_fails_alone(bench: Bench) -> None:
    lines = [line(f"good{n}") for n in range(NUM_INNOCENT)]
    lines.insert(NUM_INNOCENT // 2, line("bad", "deadly"))
    batch_id = await add_batch(bench.database, bench.file_store, lines)
    client = Deadly(FakeEngine())
    num_deaths = 0
    async with asyncio.timeout(120):
        while await _dispatch_until_dead(bench, client):
            num_deaths += 1
    assert num_deaths == MAX_DISPATCHER_LOSSES
    assert await finalize(bench.database, bench.file_store, batch_id) is BatchStatus.COMPLETED
    batch = await read_batch(bench.database, batch_id)
    assert (batch.num_completed, batch.num_failed) == (NUM_INNOCENT, 1)
    (error,) = await file_lines(bench.file_store, batch.error_file_id)
    reason: Any = error["error"]
    assert (error["custom_id"], error["response"]) == ("bad", None)
    assert reason["code"] == DISPATCHER_CODE


@pytest.mark.parametrize("stopped", [True, False])
async def test_only_a_death_counts(bench: Bench, database: Database, stopped: bool) -> None:
    """Not the end of a dispatcher whose database went away: it wrote no heartbeat since then."""
    batch_id = await add_batch(database, bench.file_store, [line("a")])
    held = await bench.lease("http://engine", TIMES)
    async with database.unit_of_work() as session:
        assert await rows.claim(session, held.id, {batch_id: 1})
        await session.execute(
            text(
                "UPDATE dispatchers SET heartbeat_at = pg_postmaster_start_time()"
                + (" + interval '1 ms'" if stopped else " - interval '1 s'")
            )
        )
    await asyncio.sleep(0.01)
    assert await reap(database, stale_s=0.001) == 1
    async with database.unit_of_work() as session:
        losses = await session.scalar(text("SELECT num_losses FROM batch_rows"))
    assert losses == int(stopped)
