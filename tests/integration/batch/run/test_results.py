"""Results on their way to the database: none lost when it goes away for a moment."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from sqlalchemy import text

from batch.finish.output import NOT_STORABLE_CODE, NOT_STORABLE_MESSAGE
from batch.queue import STAGES
from batch.run.results import ResultWriter
from batch.states import RowStatus
from store.repositories import row as rows
from store.repositories.result import NewResult
from store.repositories.row import PutBack
from store.session import Database
from tests.fixtures.batches import (
    PATIENCE_S,
    Bench,
    add_batch,
    line,
    output_lines,
    read_batch,
    row_statuses,
)

URL = "http://127.0.0.1:1"


@pytest.fixture
async def held(bench: Bench, database: Database) -> tuple[str, str, list[int]]:
    """(dispatcher id, batch id, row ids) of four leased rows."""
    batch_id = await add_batch(database, bench.file_store, [line(f"r{n}") for n in range(4)])
    lease = await bench.lease(URL)
    async with database.unit_of_work() as session:
        claimed = await rows.claim(session, lease.id, {batch_id: 4})
    return lease.id, batch_id, sorted(row.id for row in claimed)


def _result(batch_id: str, row_id: int) -> NewResult:
    return NewResult(row_id, batch_id, RowStatus.SUCCEEDED, b"{}", 1, 2, 3, 4)


async def test_everything_is_written_and_the_end_announced(
    bench: Bench, held: tuple[str, str, list[int]], database: Database
) -> None:
    token, batch_id, row_ids = held
    results = ResultWriter(token, database, bench.queue, bench.clock)
    for row_id in row_ids:
        results.add(_result(batch_id, row_id))
    results.close()
    await results.run()
    assert (results.num_written, results.num_fenced, len(results)) == (4, 0, 0)
    batch = await read_batch(database, batch_id)
    assert batch.status == "finalizing"
    assert (batch.prompt_tokens, batch.cached_tokens) == (4, 8)
    assert (batch.completion_tokens, batch.reasoning_tokens) == (12, 16)
    assert bench.queue.take() == [STAGES]
    assert await bench.due() == [batch_id]


async def test_a_second_result_is_refused_and_counted(
    bench: Bench, held: tuple[str, str, list[int]], database: Database
) -> None:
    token, batch_id, row_ids = held
    results = ResultWriter(token, database, bench.queue, bench.clock)
    writer = asyncio.ensure_future(results.run())
    results.add(_result(batch_id, row_ids[0]))
    await asyncio.sleep(0.2)
    results.add(_result(batch_id, row_ids[0]))
    results.close()
    await writer
    assert (results.num_written, results.num_fenced) == (1, 1)
    assert (await read_batch(database, batch_id)).num_completed == 1


async def test_a_row_put_back_waits_and_counts(
    bench: Bench, held: tuple[str, str, list[int]], database: Database
) -> None:
    token, batch_id, row_ids = held
    results = ResultWriter(token, database, bench.queue, bench.clock)
    results.add(PutBack(row_ids[0], delay_s=60, counts=True, error={"code": "x"}))
    results.add(PutBack(row_ids[1], refused=True))
    results.close()
    await results.run()
    async with database.unit_of_work() as session:
        again = await rows.claim(session, token, {batch_id: 4})
    assert [(row.id, row.attempt, row.num_refusals) for row in again] == [(row_ids[1], 0, 1)]
    async with database.unit_of_work() as session:
        await session.execute(text("UPDATE batch_rows SET available_at = now()"))
        again = await rows.claim(session, token, {batch_id: 4})
    assert [(row.id, row.attempt) for row in again] == [(row_ids[0], 1)]


async def test_connections_that_die_lose_nothing(
    bench: Bench,
    held: tuple[str, str, list[int]],
    database: Database,
    caplog: pytest.LogCaptureFixture,
) -> None:
    token, batch_id, row_ids = held
    results = ResultWriter(token, database, bench.queue, bench.clock)
    writer = asyncio.ensure_future(results.run())
    waiting = text(
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    blocker = Database(str(database.engine.url.render_as_string(hide_password=False)))
    async with blocker.unit_of_work() as session:
        # The write waits for this lock; then every other connection is cut.
        await session.execute(text("SELECT 1 FROM batches FOR UPDATE"))
        for row_id in row_ids:
            results.add(_result(batch_id, row_id))
        async with asyncio.timeout(PATIENCE_S):
            while not await session.scalar(waiting):
                await asyncio.sleep(0.02)
        killed = await session.execute(
            text(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        )
        assert len(killed.all()) >= 1
        await asyncio.sleep(0.3)
        assert len(results) == 4
    results.close()
    await writer
    await blocker.dispose()
    assert (results.num_written, results.num_fenced) == (4, 0)
    assert set((await row_statuses(database, batch_id)).values()) == {"succeeded"}
    assert "flush failed" in caplog.text


async def test_a_line_that_the_database_refuses_fails_alone(
    bench: Bench, held: tuple[str, str, list[int]], database: Database
) -> None:
    token, batch_id, row_ids = held
    async with database.unit_of_work() as session:
        # What a line beyond the limits of Postgres comes to, without a gigabyte.
        await session.execute(
            text(
                "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
                " IF octet_length(NEW.line) > 500 THEN"
                " RAISE program_limit_exceeded USING MESSAGE = 'too large'; END IF;"
                " RETURN NEW; END $$"
            )
        )
        await session.execute(
            text(
                "CREATE TRIGGER refuse BEFORE INSERT ON row_results"
                " FOR EACH ROW EXECUTE FUNCTION refuse()"
            )
        )
    results = ResultWriter(token, database, bench.queue, bench.clock)
    long = b'"' + b"x" * 1000 + b'"'
    for number, row_id in enumerate(row_ids):
        result = _result(batch_id, row_id)
        results.add(replace(result, line=long) if number == 2 else result)
    results.close()
    async with asyncio.timeout(PATIENCE_S):
        await results.run()
    batch = await read_batch(database, batch_id)
    assert (batch.num_completed, batch.num_failed, batch.status) == (3, 1, "finalizing")
    (failed,) = await output_lines(database, batch_id, succeeded=False)
    assert failed["custom_id"] == "r2"
    assert failed["error"] == {"code": NOT_STORABLE_CODE, "message": NOT_STORABLE_MESSAGE}
