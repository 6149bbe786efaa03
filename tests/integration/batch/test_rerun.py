"""Unanswered rows are run again as a batch of their own."""

from __future__ import annotations

import asyncio

import pytest

from api.batch_errors import BatchNotFound
from api.errors import Conflict
from batch.finish.cancel import cancel
from batch.finish.finalize import finalize
from batch.rerun import retry_failed
from batch.states import BatchStatus
from engine_adapter.client.http import HttpEngineClient
from store.models import DEFAULT_PROJECT_ID, Batch
from store.repositories import file as files
from store.session import Database
from tests.fixtures.batches import (
    Bench,
    add_batch,
    end_window,
    events_of,
    file_lines,
    line,
    read_batch,
    row_statuses,
)


async def retry(database: Database, batch_id: str) -> Batch:
    async with database.unit_of_work() as session:
        return await retry_failed(session, DEFAULT_PROJECT_ID, batch_id)


async def test_failed_lines_run_again(bench: Bench, engine: HttpEngineClient) -> None:
    lines = [line(f"good{n}") for n in range(5)]
    lines += [line(f"bad{n}", "fake:status=400") for n in range(3)]
    batch_id = await add_batch(bench.database, bench.file_store, lines)
    await bench.dispatch(engine)
    assert await finalize(bench.database, bench.file_store, batch_id) is BatchStatus.COMPLETED
    before = await read_batch(bench.database, batch_id)
    assert (before.num_completed, before.num_failed) == (5, 3)

    again = await retry(bench.database, batch_id)
    assert (again.status, again.num_total, again.retry_of) == ("in_progress", 3, batch_id)
    assert (again.model, again.endpoint) == (before.model, before.endpoint)
    assert set(await row_statuses(bench.database, again.id)) == {"bad0", "bad1", "bad2"}
    assert await events_of(bench.database, again.id) == ["created", "in_progress"]
    await bench.dispatch(engine)
    assert await finalize(bench.database, bench.file_store, again.id) is BatchStatus.COMPLETED

    ended = await read_batch(bench.database, again.id)
    errors = await file_lines(bench.file_store, ended.error_file_id)
    assert sorted(str(one["custom_id"]) for one in errors) == ["bad0", "bad1", "bad2"]
    # What was final stayed final.
    after = await read_batch(bench.database, batch_id)
    assert (after.status, after.num_failed, after.num_results) == ("completed", 3, 8)
    assert await events_of(bench.database, batch_id) == [
        *("created", "in_progress", "finalizing", "completed"),
        "retried",
    ]
    # And the retry can be retried.
    assert (await retry(bench.database, again.id)).num_total == 3


@pytest.mark.parametrize("end", ["cancelled", "expired"])
async def test_lines_that_never_ran_run_in_the_retry(
    bench: Bench, engine: HttpEngineClient, end: str
) -> None:
    batch_id = await add_batch(bench.database, bench.file_store, [line("a"), line("b")])
    if end == "cancelled":
        async with bench.database.unit_of_work() as session:
            await cancel(session, DEFAULT_PROJECT_ID, batch_id)
    else:
        await end_window(bench.database, batch_id)
    assert await finalize(bench.database, bench.file_store, batch_id) == end
    again = await retry(bench.database, batch_id)
    assert again.expires_at > (await read_batch(bench.database, batch_id)).expires_at
    await bench.dispatch(engine)
    assert await finalize(bench.database, bench.file_store, again.id) is BatchStatus.COMPLETED
    ended = await read_batch(bench.database, again.id)
    assert (ended.num_completed, ended.num_failed) == (2, 0)


async def test_retries_asked_for_at_once_are_one(bench: Bench) -> None:
    batch_id = await add_batch(bench.database, bench.file_store, [line("a")])
    await end_window(bench.database, batch_id)
    await finalize(bench.database, bench.file_store, batch_id)
    found = await asyncio.gather(*(retry(bench.database, batch_id) for _ in range(5)))
    assert len({one.id for one in found}) == 1
    assert set(await row_statuses(bench.database, found[0].id)) == {"a"}


async def test_when_there_is_nothing_to_retry(bench: Bench, engine: HttpEngineClient) -> None:
    batch_id = await add_batch(bench.database, bench.file_store, [line("a")])
    with pytest.raises(Conflict) as refused:
        await retry(bench.database, batch_id)
    assert refused.value.current == "in_progress"
    await bench.dispatch(engine)
    await finalize(bench.database, bench.file_store, batch_id)
    with pytest.raises(Conflict, match="nothing to retry"):
        await retry(bench.database, batch_id)
    async with bench.database.unit_of_work() as session:
        with pytest.raises(BatchNotFound):
            await retry_failed(session, "proj_other", batch_id)


async def test_without_its_input_file_a_batch_cannot_be_retried(bench: Bench) -> None:
    batch_id = await add_batch(bench.database, bench.file_store, [line("a")])
    await end_window(bench.database, batch_id)
    await finalize(bench.database, bench.file_store, batch_id)
    batch = await read_batch(bench.database, batch_id)
    async with bench.database.unit_of_work() as session:
        assert await files.mark_deleted(session, DEFAULT_PROJECT_ID, batch.input_file_id)
    with pytest.raises(Conflict, match="is gone"):
        await retry(bench.database, batch_id)
