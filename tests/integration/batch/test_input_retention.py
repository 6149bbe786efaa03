"""The input of a batch that is not over is never collected, whatever has become of the file."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from batch.finish.collect import collect_files
from batch.finish.finalize import finalize
from batch.rerun import retry_failed
from batch.states import LIVE_BATCH, BatchStatus
from batch.steer import pause, resume
from engine_adapter.client.http import HttpEngineClient
from store.models import DEFAULT_PROJECT_ID
from store.session import Database
from tests.fixtures.batches import Bench, add_batch, end_window, line, read_batch


async def end_file(database: Database, file_id: str, *, column: str) -> None:
    """Let the file have expired, or have been deleted behind the API's back, long ago."""
    assert column in ("expires_at", "deleted_at")
    async with database.unit_of_work() as session:
        await session.execute(
            text(
                f"UPDATE files SET {column} = statement_timestamp() - interval '1 day'"
                " WHERE id = :id"
            ),
            {"id": file_id},
        )


async def set_status(database: Database, batch_id: str, status: str) -> None:
    async with database.unit_of_work() as session:
        await session.execute(
            text("UPDATE batches SET status = :status WHERE id = :id"),
            {"id": batch_id, "status": status},
        )


@pytest.mark.parametrize("column", ["expires_at", "deleted_at"])
async def test_in_no_live_status_is_the_input_collected(bench: Bench, column: str) -> None:
    batch_id = await add_batch(bench.database, bench.file_store, [line("a")])
    file_id = (await read_batch(bench.database, batch_id)).input_file_id
    await end_file(bench.database, file_id, column=column)
    for status in sorted(BatchStatus):
        await set_status(bench.database, batch_id, status)
        if status in LIVE_BATCH:
            assert await collect_files(bench.database, bench.file_store) == 0, status
            assert bench.file_store.keys() == [file_id]
    await set_status(bench.database, batch_id, "completed")
    assert await collect_files(bench.database, bench.file_store) == 1
    assert bench.file_store.keys() == []


async def test_a_file_of_two_batches_stays_for_the_second(
    bench: Bench, engine: HttpEngineClient
) -> None:
    first = await add_batch(bench.database, bench.file_store, [line("a")])
    await end_window(bench.database, first)
    await finalize(bench.database, bench.file_store, first)
    async with bench.database.unit_of_work() as session:
        second = await retry_failed(session, DEFAULT_PROJECT_ID, first)
    await end_file(bench.database, second.input_file_id, column="expires_at")
    async with bench.database.unit_of_work() as session:
        await pause(session, DEFAULT_PROJECT_ID, second.id)
    assert await collect_files(bench.database, bench.file_store) == 0
    async with bench.database.unit_of_work() as session:
        await resume(session, DEFAULT_PROJECT_ID, second.id)
    await bench.dispatch(engine)
    assert await finalize(bench.database, bench.file_store, second.id) is BatchStatus.COMPLETED
    assert (await read_batch(bench.database, second.id)).num_completed == 1
    assert await collect_files(bench.database, bench.file_store) == 1
