"""The hot queries: claims that never overlap, results numbered without gaps."""

from __future__ import annotations

import asyncio

from sqlalchemy import text

from batch.files.memory import MemoryFileStore
from store.repositories import batch as batches
from store.repositories import result as results
from store.repositories import row as rows
from store.repositories.result import NewResult, Written
from store.repositories.row import ClaimedRow
from store.session import Database
from tests.fixtures.batches import (
    MODEL,
    Bench,
    add_batch,
    end_window,
    line,
    output_lines,
    read_batch,
)


async def _batch(database: Database, num_rows: int) -> str:
    return await add_batch(database, MemoryFileStore(), [line(f"r{n}") for n in range(num_rows)])


async def _claim(database: Database, token: str, quotas: dict[str, int]) -> list[ClaimedRow]:
    async with database.unit_of_work() as session:
        return await rows.claim(session, token, quotas)


async def _write(database: Database, token: str | None, new: list[NewResult]) -> Written:
    async with database.unit_of_work() as session:
        return await results.write(session, new, dispatcher_id=token)


async def test_claims_at_once_never_overlap(database: Database) -> None:
    bench = Bench(database)
    batch_id = await _batch(database, 200)
    tokens = [(await bench.lease(f"http://e{n}")).id for n in range(4)]
    claimed = await asyncio.gather(
        *(_claim(database, token, {batch_id: 40}) for token in tokens for _ in range(2))
    )
    found = [row.id for part in claimed for row in part]
    assert len(found) == len(set(found))
    assert len(found) >= 160


async def test_a_claim_takes_from_each_batch_what_it_is_told(database: Database) -> None:
    token = (await Bench(database).lease("http://e")).id
    one, two = await _batch(database, 10), await _batch(database, 10)
    claimed = await _claim(database, token, {one: 3, two: 20})
    assert sorted(row.batch_id for row in claimed) == sorted([one] * 3 + [two] * 10)
    first = [row for row in claimed if row.batch_id == one]
    assert sorted(row.custom_id for row in first) == ["r0", "r1", "r2"]


async def test_a_claim_needs_a_live_lease(database: Database) -> None:
    batch_id = await _batch(database, 3)
    assert await _claim(database, "disp_nobody", {batch_id: 3}) == []


async def test_which_batches_are_live(database: Database) -> None:
    running, paused, over = [await _batch(database, 1) for _ in range(3)]
    async with database.unit_of_work() as session:
        await session.execute(
            text("UPDATE batches SET paused_at = now() WHERE id = :id"), {"id": paused}
        )
    await end_window(database, over)
    async with database.unit_of_work() as session:
        assert [one.id for one in await batches.live(session, [MODEL], per_project=10)] == [running]
        assert await batches.live(session, ["another-model"], per_project=10) == []
        assert await batches.stopped(session, [running, paused, over]) == {
            over: "expired",
            paused: "pending",
        }


async def test_numbers_are_dense_whoever_writes(database: Database) -> None:
    bench = Bench(database)
    batch_id = await _batch(database, 120)
    writes = []
    for n in range(4):
        token = (await bench.lease(f"http://e{n}")).id
        claimed = await _claim(database, token, {batch_id: 30})
        for start in range(0, 30, 10):
            new = [
                NewResult(row.id, batch_id, "succeeded", b'{"n":%d}' % row.id)
                for row in claimed[start : start + 10]
            ]
            writes.append(_write(database, token, new))
    written = await asyncio.gather(*writes)
    assert sum(one.num_written for one in written) == 120
    assert [one.closed for one in written if one.closed] == [((batch_id, "in_progress"),)]
    async with database.unit_of_work() as session:
        found = await session.execute(text("SELECT seq FROM row_results ORDER BY seq"))
        assert list(found.scalars()) == list(range(1, 121))
    assert (await read_batch(database, batch_id)).num_results == 120


async def test_results_keep_the_order_in_which_they_came(database: Database) -> None:
    token = (await Bench(database).lease("http://e")).id
    batch_id = await _batch(database, 9)
    claimed = await _claim(database, token, {batch_id: 9})
    order = [row.id for row in reversed(claimed)]
    await _write(
        database, token, [NewResult(key, batch_id, "succeeded", b'{"n":%d}' % key) for key in order]
    )
    lines = await output_lines(database, batch_id, succeeded=True)
    assert [one["n"] for one in lines] == order


async def test_one_write_may_touch_many_batches(database: Database) -> None:
    token = (await Bench(database).lease("http://e")).id
    ids = [await _batch(database, 2) for _ in range(3)]
    claimed = await _claim(database, token, dict.fromkeys(ids, 2))
    new = [NewResult(row.id, row.batch_id, "errored", b"{}") for row in claimed]
    written = await _write(database, token, new)
    assert sorted(written.closed) == sorted((batch_id, "in_progress") for batch_id in ids)
    for batch_id in ids:
        batch = await read_batch(database, batch_id)
        assert (batch.num_completed, batch.num_failed, batch.num_results) == (0, 2, 2)


async def test_a_row_that_is_leased_is_not_closed_as_pending(database: Database) -> None:
    token = (await Bench(database).lease("http://e")).id
    batch_id = await _batch(database, 2)
    (claimed,) = await _claim(database, token, {batch_id: 1})
    written = await _write(database, None, [NewResult(claimed.id, batch_id, "cancelled", b"{}")])
    assert (written.num_written, written.num_fenced) == (0, 1)


async def test_instants_grow_with_the_numbers_whoever_began_first(database: Database) -> None:
    bench = Bench(database)
    batch_id = await _batch(database, 2)
    token = (await bench.lease("http://e")).id
    one, two = await _claim(database, token, {batch_id: 2})
    async with database.unit_of_work() as early:
        await early.execute(text("SELECT 1"))
        await _write(database, token, [NewResult(one.id, batch_id, "succeeded", b"{}")])
        last = NewResult(two.id, batch_id, "succeeded", b"{}")
        await results.write(early, [last], dispatcher_id=token)
    async with database.unit_of_work() as session:
        found = await session.execute(text("SELECT seq, created_at FROM row_results ORDER BY seq"))
        (first, first_at), (second, second_at) = found.all()
    assert (first, second) == (1, 2)
    assert first_at < second_at
