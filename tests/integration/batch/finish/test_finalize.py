"""The last stage: files once, ends once, whatever is cut off or run twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from sqlalchemy import func, select, text

from batch.files.base import StoredObject
from batch.files.memory import MemoryFileStore
from batch.finish.cancel import cancel
from batch.finish.finalize import finalize
from batch.states import BatchStatus
from engine_adapter.client.http import HttpEngineClient
from store.models import File, Usage
from store.session import Database
from tests.fixtures.batches import (
    MODEL,
    Bench,
    add_batch,
    add_validating,
    end_window,
    events_of,
    file_lines,
    line,
    read_batch,
)

PROJECT = "proj_default"


@pytest.fixture
async def finished(bench: Bench, engine: HttpEngineClient, database: Database) -> str:
    """A batch in `finalizing`: three rows answered, one refused."""
    lines = [line("bad", "fake:status=400"), *(line(f"r{n}") for n in range(3))]
    batch_id = await add_batch(database, bench.file_store, lines)
    await bench.dispatch(engine)
    return batch_id


async def _num_produced(database: Database) -> int:
    async with database.unit_of_work() as session:
        query = select(func.count()).select_from(File).where(File.purpose == "batch_output")
        return int(await session.scalar(query) or 0)


async def _cancel(database: Database, batch_id: str) -> None:
    async with database.unit_of_work() as session:
        await cancel(session, PROJECT, batch_id)


@pytest.mark.contract("R-06", "R-32")
async def test_the_union_of_both_files_is_the_input(
    bench: Bench, finished: str, database: Database
) -> None:
    assert await finalize(database, bench.file_store, finished) is BatchStatus.COMPLETED
    batch = await read_batch(database, finished)
    done = await file_lines(bench.file_store, batch.output_file_id)
    failed = await file_lines(bench.file_store, batch.error_file_id)
    assert sorted(str(one["custom_id"]) for one in done) == ["r0", "r1", "r2"]
    assert [one["custom_id"] for one in failed] == ["bad"]


async def test_a_second_run_finds_it_done(bench: Bench, finished: str, database: Database) -> None:
    await finalize(database, bench.file_store, finished)
    before = await read_batch(database, finished)
    assert await finalize(database, bench.file_store, finished) is None
    after = await read_batch(database, finished)
    assert (after.output_file_id, after.completed_at) == (
        before.output_file_id, before.completed_at,
    )  # fmt: skip
    assert await _num_produced(database) == 2
    async with database.unit_of_work() as session:
        (counted,) = (await session.execute(select(Usage))).scalars()
    # The dispatcher counted every row as it ended; the end of the batch adds nothing.
    assert (counted.num_requests, counted.request_class, counted.model) == (4, "offline", MODEL)
    assert counted.completion_tokens == after.completion_tokens > 0


async def test_of_many_at_once_one_delivers(
    bench: Bench, finished: str, database: Database
) -> None:
    ends = await asyncio.gather(*(finalize(database, bench.file_store, finished) for _ in range(4)))
    assert sorted(ends, key=str) == [None, None, None, BatchStatus.COMPLETED]
    assert await _num_produced(database) == 2
    assert (await events_of(database, finished)).count("completed") == 1


class _BreaksOnce(MemoryFileStore):
    """Fails in the middle of the `number`-th object that is put into it."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number

    async def put(self, key: str, chunks: AsyncIterator[bytes]) -> StoredObject:
        self.number -= 1
        if self.number == 0:
            await anext(chunks)
            raise OSError("the disk is gone")
        return await super().put(key, chunks)


@pytest.mark.parametrize("number", [2, 3])
@pytest.mark.contract("R-35")
async def test_cut_off_anywhere_it_is_repeated_whole(
    bench: Bench, engine: HttpEngineClient, database: Database, number: int
) -> None:
    bench.file_store = _BreaksOnce(number)
    lines = [line("bad", "fake:status=400"), line("good")]
    batch_id = await add_batch(database, bench.file_store, lines)
    await bench.dispatch(engine)
    with pytest.raises(OSError, match="the disk is gone"):
        await finalize(database, bench.file_store, batch_id)
    assert (await read_batch(database, batch_id)).status == "finalizing"
    assert await _num_produced(database) == 0
    assert await finalize(database, bench.file_store, batch_id) is BatchStatus.COMPLETED
    assert await _num_produced(database) == 2


class _CancelsMeanwhile(MemoryFileStore):
    """Somebody cancels the batch while its files are written."""

    def __init__(self, database: Database) -> None:
        super().__init__()
        self.database = database
        self.batch_id: str | None = None

    async def put(self, key: str, chunks: AsyncIterator[bytes]) -> StoredObject:
        if self.batch_id:
            await _cancel(self.database, self.batch_id)
        return await super().put(key, chunks)


async def test_a_cancel_overtakes_the_end_of_an_expired_batch(
    bench: Bench, database: Database
) -> None:
    store = _CancelsMeanwhile(database)
    batch_id = await add_batch(database, store, [line("a")])
    await end_window(database, batch_id)
    store.batch_id = batch_id
    assert await finalize(database, store, batch_id) is None
    assert (await read_batch(database, batch_id)).status == "cancelling"
    store.batch_id = None
    assert await finalize(database, store, batch_id) is BatchStatus.CANCELLED
    errors: list[Any] = await file_lines(
        store, (await read_batch(database, batch_id)).error_file_id
    )
    # The row had its end before the cancel came.
    assert errors[0]["error"]["code"] == "batch_expired"


async def test_cancelled_before_validation_there_are_no_files(
    bench: Bench, database: Database
) -> None:
    batch_id = await add_validating(database, bench.file_store, [line("a")])
    await _cancel(database, batch_id)
    assert await finalize(database, bench.file_store, batch_id) is BatchStatus.CANCELLED
    batch = await read_batch(database, batch_id)
    assert (batch.output_file_id, batch.error_file_id, batch.num_total) == (None, None, 0)


@pytest.mark.contract("R-07", "R-11")
async def test_a_batch_that_never_ran_expires_with_every_line(
    bench: Bench, database: Database
) -> None:
    lines = [line(f"r{n}") for n in range(2500)]
    batch_id = await add_batch(database, bench.file_store, lines)
    validating = await add_validating(database, bench.file_store, [line("a")])
    await end_window(database, batch_id)
    await end_window(database, validating)
    assert await bench.work() == 2
    assert (await read_batch(database, validating)).status == "expired"
    batch = await read_batch(database, batch_id)
    assert (batch.num_failed, batch.output_file_id, batch.finalizing_at) == (2500, None, None)
    errors = await file_lines(bench.file_store, batch.error_file_id)
    assert {one["custom_id"] for one in errors} == {f"r{n}" for n in range(2500)}


async def test_a_running_batch_is_left_alone(bench: Bench, database: Database) -> None:
    batch_id = await add_batch(database, bench.file_store, [line("a")])
    assert await finalize(database, bench.file_store, batch_id) is None
    assert await finalize(database, bench.file_store, "batch_unknown") is None
    assert (await read_batch(database, batch_id)).status == "in_progress"


@pytest.mark.contract("R-24")
async def test_files_live_as_long_as_the_batch_says(
    bench: Bench, finished: str, database: Database
) -> None:
    async with database.unit_of_work() as session:
        await session.execute(text("UPDATE batches SET output_expires_after_s = 3600"))
    await finalize(database, bench.file_store, finished)
    batch = await read_batch(database, finished)
    async with database.unit_of_work() as session:
        file = await session.get_one(File, batch.output_file_id)
    assert file.expires_at is not None
    assert (file.expires_at - file.created_at).total_seconds() == pytest.approx(3600, abs=2)
    assert file.filename == f"{finished}_output.jsonl"
