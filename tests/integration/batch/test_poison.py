"""Lines that end their engine each time they run: they alone fail, after few deaths."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from batch.finish.finalize import finalize
from batch.run.quarantine import FAILURE_CODE, MAX_LOSSES
from batch.states import BatchStatus
from engine_adapter.client.http import HttpEngineClient
from store.session import Database
from tests.fixtures.batches import MODEL, Bench, add_batch, file_lines, line, read_batch
from tests.fixtures.engine_process import POISON, engine_process

NUM_INNOCENT = 60


@pytest.mark.parametrize("num_poisoned", [1, pytest.param(2, marks=pytest.mark.thorough)])
async def test_a_line_that_ends_the_engine_fails_alone(
    bench: Bench, database: Database, num_poisoned: int
) -> None:
    lines = [line(f"good{n}", "fake:tokens=2 fake:token_ms=500") for n in range(NUM_INNOCENT)]
    for number in range(num_poisoned):
        lines.insert(10 + 20 * number, line(f"bad{number}", POISON))
    batch_id = await add_batch(database, bench.file_store, lines)
    async with engine_process(MODEL) as engine:
        supervisor = asyncio.ensure_future(engine.keep_alive())
        client = HttpEngineClient(engine.url)
        async with asyncio.timeout(120):
            ending = await bench.dispatch(client)
        await client.close()
        supervisor.cancel()
        # Each death is charged to at least one of them; to several where they were there together.
        assert engine.num_deaths <= MAX_LOSSES * num_poisoned
    assert ending.num_written == NUM_INNOCENT + num_poisoned
    assert await finalize(database, bench.file_store, batch_id) is BatchStatus.COMPLETED
    batch = await read_batch(database, batch_id)
    assert (batch.num_completed, batch.num_failed) == (NUM_INNOCENT, num_poisoned)
    errors: list[Any] = await file_lines(bench.file_store, batch.error_file_id)
    assert {one["custom_id"] for one in errors} == {f"bad{n}" for n in range(num_poisoned)}
    for one in errors:
        assert one["response"] is None
        assert one["error"]["code"] == FAILURE_CODE
        assert set(one["error"]) == {"code", "message"}
