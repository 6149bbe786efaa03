"""What a dispatcher has in memory is bounded in bytes, however long the lines are."""

from __future__ import annotations

from sqlalchemy import text

from batch.run.dispatch import DispatchLimits
from batch.run.results import FLUSH_BYTES, ResultWriter
from engine_adapter.client.http import HttpEngineClient
from store.repositories import result as results
from store.repositories import row as rows
from store.repositories.result import NewResult
from store.session import Database
from tests.fixtures.batches import (
    PATIENT,
    Bench,
    add_batch,
    add_project,
    line,
    output_lines,
    row_statuses,
    running,
    until,
)
from tests.fixtures.steered_engine import SteeredEngine

MIB = 1024**2
LARGE = "large " + "x" * (3 * MIB // 2)


async def test_long_lines_are_few_at_once_and_keep_no_short_ones_waiting(
    bench: Bench, engine: HttpEngineClient, fake_engine: SteeredEngine
) -> None:
    await add_project(bench.database, "proj_other")
    fake_engine.held = True
    large = await add_batch(
        bench.database, bench.file_store, [line(f"large{n}", LARGE) for n in range(12)]
    )
    small = await add_batch(
        bench.database,
        bench.file_store,
        [line(f"small{n}", "small") for n in range(30)],
        project_id="proj_other",
    )
    limits = DispatchLimits(max_bytes=6 * MIB)
    dispatcher = bench.dispatcher(await bench.lease(engine.url, PATIENT), engine, limits=limits)
    async with running(dispatcher):
        await until(lambda: fake_engine.asked["small"] == 30)
        assert fake_engine.asked["large"] <= 3, "three quarters of the bytes"
        fake_engine.held = False
    for batch_id in (large, small):
        assert set((await row_statuses(bench.database, batch_id)).values()) == {"succeeded"}


async def test_a_line_longer_than_all_bytes_runs_alone(
    bench: Bench, engine: HttpEngineClient, fake_engine: SteeredEngine
) -> None:
    batch_id = await add_batch(
        bench.database, bench.file_store, [line(f"large{n}", LARGE) for n in range(3)]
    )
    await bench.dispatch(engine, limits=DispatchLimits(max_bytes=MIB))
    assert set((await row_statuses(bench.database, batch_id)).values()) == {"succeeded"}


async def _leased(bench: Bench, num_rows: int) -> tuple[str, str, list[int]]:
    """Batch, lease and row ids of rows that may be given results."""
    batch_id = await add_batch(
        bench.database, bench.file_store, [line(f"r{n}") for n in range(num_rows)]
    )
    lease = await bench.lease("http://engine", PATIENT)
    async with bench.database.unit_of_work() as session:
        claimed = await rows.claim(session, lease.id, {batch_id: num_rows})
    return batch_id, lease.id, [row.id for row in claimed]


async def test_long_results_are_written_a_few_at_a_time(bench: Bench) -> None:
    batch_id, lease_id, ids = await _leased(bench, 6)
    results = ResultWriter(lease_id, bench.database, bench.queue, bench.clock)
    filler = b'"' + b"y" * (FLUSH_BYTES // 2) + b'"'
    for row_id in ids:
        results.add(NewResult(row_id, batch_id, "succeeded", filler))
    assert results.num_bytes == 6 * len(filler)
    results.close()
    await results.run()
    assert (results.num_bytes, results.num_written) == (0, 6)
    async with bench.database.unit_of_work() as session:
        num_writes = await session.scalar(
            text("SELECT count(DISTINCT created_at) FROM row_results WHERE batch_id = :id"),
            {"id": batch_id},
        )
    assert num_writes == 3, "two at a time"
    assert len(await output_lines(bench.database, batch_id, succeeded=True)) == 6


async def test_a_page_and_an_export_read_no_line_after_their_bytes(
    bench: Bench, database: Database
) -> None:
    batch_id, lease_id, ids = await _leased(bench, 5)
    long = b'"' + b"z" * results.EXPORT_BYTES + b'"'
    new = [NewResult(row_id, batch_id, "succeeded", long) for row_id in ids]
    async with database.unit_of_work() as session:
        await results.write(session, new, dispatcher_id=lease_id)
        page = await results.after(
            session, batch_id, seq=1, succeeded=True, max_lines=10, max_bytes=len(long) + 1
        )
        assert [one.seq for one in page] == [2, 3]
        chunks = [chunk.data async for chunk in results.lines(session, batch_id, succeeded=True)]
    assert [len(chunk) for chunk in chunks] == [len(long) + 1] * 5
