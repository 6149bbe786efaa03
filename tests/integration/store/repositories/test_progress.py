"""How batches get on, read back while they do."""

from __future__ import annotations

import pytest
from sqlalchemy import event, text

from batch.steer import pause, resume
from store.models import DEFAULT_PROJECT_ID
from store.repositories import progress
from store.repositories import result as results
from store.repositories import row as rows
from store.repositories.progress import (
    BatchReading,
    ServiceReading,
    read_batches,
    read_service,
    recent_service,
)
from store.repositories.result import NewResult
from store.session import Database
from tests.fixtures.batches import PATIENCE_S, Bench, add_batch, add_validating, line


async def finish(database: Database, token: str, batch_id: str, num_rows: int) -> None:
    """Give so many rows a result of 30 tokens."""
    async with database.unit_of_work() as session:
        claimed = await rows.claim(session, token, {batch_id: num_rows})
        new = [
            NewResult(row.id, batch_id, "succeeded", b"{}", prompt_tokens=10, completion_tokens=20)
            for row in claimed
        ]
        await results.write(session, new, dispatcher_id=token)


async def age(database: Database, batch_id: str, age_s: int) -> None:
    """Let the batch's results have come so long ago."""
    async with database.unit_of_work() as session:
        await session.execute(
            text(
                "UPDATE row_results SET created_at = statement_timestamp()"
                " - make_interval(secs => :s) WHERE batch_id = :id AND seq = 1"
            ),
            {"id": batch_id, "s": age_s},
        )


async def read(database: Database, batch_id: str) -> tuple[BatchReading | None, ServiceReading]:
    async with database.unit_of_work() as session:
        found = await read_batches(session, [batch_id])
        return found.get(batch_id), await read_service(session)


async def test_pace_and_backlog(database: Database) -> None:
    bench = Bench(database)
    lines = [line(f"r{n:03}") for n in range(100)]
    num_bytes = sum(len(one) + 1 for one in lines)
    batch_id = await add_batch(database, bench.file_store, lines)
    reading, service = await read(database, batch_id)
    assert reading is not None
    assert (reading.num_paced, reading.paced_s, reading.num_leased) == (0, None, 0)
    assert reading.has_ready
    assert service == ServiceReading(num_bytes, None, None, 0)

    token = (await bench.lease("http://e")).id
    await finish(database, token, batch_id, 41)
    await age(database, batch_id, 1000)
    reading, service = await read(database, batch_id)
    assert reading is not None
    assert (reading.num_paced, reading.paced_tokens) == (40, 40 * 30)
    assert reading.paced_s is not None
    assert 1000 - PATIENCE_S < reading.paced_s < 1000 + PATIENCE_S
    assert abs(service.backlog_bytes - num_bytes * 0.59) < 1
    assert service.live_bytes_per_s is not None
    expected = num_bytes * 0.4 / reading.paced_s
    assert abs(service.live_bytes_per_s / expected - 1) < PATIENCE_S / 1000
    assert service.num_dispatchers == 1


async def test_what_counts_as_backlog(database: Database) -> None:
    bench = Bench(database)
    one = await add_validating(database, bench.file_store, [line("a")])
    num_bytes = len(line("a")) + 1
    _, service = await read(database, one)
    assert service.backlog_bytes == num_bytes
    paused = await add_batch(database, bench.file_store, [line("a")])
    await add_batch(database, bench.file_store, [line("a")], completion_window_s=0)
    async with database.unit_of_work() as session:
        await pause(session, DEFAULT_PROJECT_ID, paused)
    reading, service = await read(database, one)
    assert reading is None
    assert service.backlog_bytes == num_bytes


async def test_what_is_held_or_backing_off(database: Database) -> None:
    bench = Bench(database)
    batch_id = await add_batch(database, bench.file_store, [line("a")])
    token = (await bench.lease("http://e")).id
    async with database.unit_of_work() as session:
        (claimed,) = await rows.claim(session, token, {batch_id: 1})
    reading, _ = await read(database, batch_id)
    assert reading is not None
    assert (reading.num_leased > 0, reading.has_ready) == (True, False)
    async with database.unit_of_work() as session:
        await rows.put_back(session, token, [rows.PutBack(claimed.id, delay_s=60, counts=True)])
    reading, _ = await read(database, batch_id)
    assert reading is not None
    assert (reading.num_leased, reading.has_ready) == (0, False)


async def test_the_speed_of_finished_batches(database: Database) -> None:
    bench = Bench(database)
    lines = [line(f"r{n:03}") for n in range(40)]
    num_bytes = sum(len(one) + 1 for one in lines)
    for taken_s, num_lines in ((10, 40), (30, 40), (1000, 5)):
        batch_id = await add_batch(database, bench.file_store, lines[:num_lines])
        async with database.unit_of_work() as session:
            await session.execute(
                text(
                    "UPDATE batches SET status = 'completed', num_completed = num_total,"
                    " finalizing_at = in_progress_at + make_interval(secs => :s) WHERE id = :id"
                ),
                {"id": batch_id, "s": taken_s},
            )
    new = await add_validating(database, bench.file_store, lines)
    _, service = await read(database, new)
    assert service.live_bytes_per_s is None
    assert service.past_bytes_per_s is not None
    assert abs(service.past_bytes_per_s - 2 * num_bytes / 40) < 1


async def test_a_pause_is_no_part_of_the_pace(database: Database) -> None:
    bench = Bench(database)
    batch_id = await add_batch(database, bench.file_store, [line(f"r{n:03}") for n in range(100)])
    token = (await bench.lease("http://e")).id
    await finish(database, token, batch_id, 30)
    await age(database, batch_id, 1000)
    async with database.unit_of_work() as session:
        await pause(session, DEFAULT_PROJECT_ID, batch_id)
        await resume(session, DEFAULT_PROJECT_ID, batch_id)
    reading, _ = await read(database, batch_id)
    assert reading is not None
    assert reading.num_paced == 0
    await finish(database, token, batch_id, 20)
    reading, _ = await read(database, batch_id)
    assert reading is not None
    assert (reading.num_paced, reading.paced_tokens) == (20, 20 * 30)
    assert reading.paced_s is not None
    assert 0 < reading.paced_s < PATIENCE_S


@pytest.mark.parametrize(("age", "most"), [(1e9, 1), (-1.0, 20)])
async def test_many_answers_share_one_sum_over_all_live_batches(
    database: Database, age: float, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "AGE", age)
    seen: list[str] = []

    def note(_: object, __: object, statement: str, *___: object) -> None:
        seen.append(statement)

    engine = database.engine.sync_engine
    event.listen(engine, "before_cursor_execute", note)
    try:
        for _ in range(20):
            async with database.unit_of_work() as session:
                assert await recent_service(session) == ServiceReading(0.0, None, None, 0)
    finally:
        event.remove(engine, "before_cursor_execute", note)
    assert sum("backlog_bytes" in one for one in seen) == most
