"""What has ended goes: results with their file, and everything after the retention period."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from batch.finish import retain
from batch.finish.collect import collect_files, delete_file
from batch.finish.finalize import finalize
from batch.rerun import retry_failed
from engine_adapter.client.http import HttpEngineClient
from store.models import DEFAULT_PROJECT_ID
from store.session import Database
from tests.fixtures.batches import Bench, add_batch, line, read_batch

HISTORY = ("batches", "batch_rows", "row_results", "batch_events", "files")
BAD = "fake:status=400"


async def ended(bench: Bench, engine: HttpEngineClient, num_rows: int = 5) -> str:
    """A completed batch with an output file, and an error file of one line."""
    lines = [line(f"r{n}") for n in range(num_rows)] + [line("bad", BAD)]
    batch_id = await add_batch(bench.database, bench.file_store, lines)
    await bench.dispatch(engine)
    assert await finalize(bench.database, bench.file_store, batch_id) == "completed"
    return batch_id


async def counts(database: Database) -> dict[str, int]:
    async with database.unit_of_work() as session:
        found = {
            table: await session.scalar(text(f"SELECT count(*) FROM {table}")) for table in HISTORY
        }
    return {table: int(num or 0) for table, num in found.items()}


async def left(database: Database, batch_id: str) -> list[bool]:
    """Of each result of the batch that is still there, whether it belongs to the output."""
    async with database.unit_of_work() as session:
        found = await session.scalars(
            text("SELECT succeeded FROM row_results WHERE batch_id = :id ORDER BY seq"),
            {"id": batch_id},
        )
        return list(found)


async def let_pass(database: Database, days: int) -> None:
    """Make everything that has happened older."""
    async with database.unit_of_work() as session:
        for table, columns in (
            ("batches", ("created_at", "expires_at", "completed_at", "failed_at")),
            ("files", ("created_at", "expires_at", "deleted_at", "collected_at")),
        ):
            moved = ", ".join(f"{one} = {one} - make_interval(days => :days)" for one in columns)
            await session.execute(text(f"UPDATE {table} SET {moved}"), {"days": days})


@pytest.mark.parametrize("how", ["deleted", "expired"])
async def test_results_go_with_their_file(
    bench: Bench, engine: HttpEngineClient, database: Database, how: str
) -> None:
    batch_id, other_id = await ended(bench, engine), await ended(bench, engine)
    output_id = (await read_batch(database, batch_id)).output_file_id
    assert output_id is not None
    async with database.unit_of_work() as session:
        if how == "deleted":
            await delete_file(session, DEFAULT_PROJECT_ID, output_id)
        else:
            await session.execute(
                text("UPDATE files SET expires_at = statement_timestamp() WHERE id = :id"),
                {"id": output_id},
            )
    await collect_files(database, bench.file_store)
    assert await left(database, batch_id) == [False]
    assert len(await left(database, other_id)) == 6
    error_id = (await read_batch(database, batch_id)).error_file_id
    assert error_id is not None
    async with database.unit_of_work() as session:
        await delete_file(session, DEFAULT_PROJECT_ID, error_id)
    await collect_files(database, bench.file_store)
    assert await left(database, batch_id) == []


async def test_more_results_than_one_step_removes(
    bench: Bench, engine: HttpEngineClient, database: Database
) -> None:
    batch_id = await ended(bench, engine, num_rows=10)
    output_id = (await read_batch(database, batch_id)).output_file_id
    assert output_id is not None
    assert await retain.forget_results(database, output_id, step_rows=4) == 10
    assert await retain.forget_results(database, output_id, step_rows=4) == 0
    assert await retain.forget_results(database, "file-unknown") == 0
    assert await retain.retire(database, bench.clock, retention_s=0, step_rows=4) == 1
    assert (await counts(database))["batch_rows"] == 0


async def test_a_batch_goes_whole_after_its_retention_period(
    bench: Bench, engine: HttpEngineClient, database: Database
) -> None:
    old_id = await ended(bench, engine)
    async with database.unit_of_work() as session:
        retry_id = (await retry_failed(session, DEFAULT_PROJECT_ID, old_id, key_id=None)).id
    await let_pass(database, 60)
    before = await counts(database)
    assert await retain.retire(database, bench.clock, retention_s=61 * 86400) == 0
    assert await counts(database) == before
    live = await add_batch(database, bench.file_store, [line("new")])
    assert await retain.retire(database, bench.clock, retention_s=59 * 86400) == 1
    # The retry reads the old batch's input and lives on; so does the file that is not collected.
    assert (await read_batch(database, retry_id)).retry_of is None
    assert (await read_batch(database, live)).status == "in_progress"
    after = await counts(database)
    assert after["batches"] == 2
    assert after["files"] == before["files"] + 1


async def test_files_are_forgotten_once_nothing_names_them(
    bench: Bench, engine: HttpEngineClient, database: Database
) -> None:
    await ended(bench, engine)
    await let_pass(database, 40)
    async with database.unit_of_work() as session:
        await session.execute(text("UPDATE files SET expires_at = statement_timestamp()"))
    assert await collect_files(database, bench.file_store) == 3
    await let_pass(database, 60)
    assert await retain.retire(database, bench.clock, retention_s=59 * 86400) == 1
    assert set((await counts(database)).values()) == {0}
    assert bench.file_store.keys() == []
