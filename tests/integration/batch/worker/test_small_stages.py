"""Stages of small batches are run together: a few transactions for dozens, and each for itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import event, text

from batch.files.base import StoredObject
from batch.files.memory import MemoryFileStore
from batch.finish import finalize_small
from batch.finish.cancel import cancel
from batch.finish.finalize import finalize, produced_file_id
from batch.intake import validate_small
from batch.intake.validate import validate
from batch.worker import stage_work
from batch.worker.stage_work import SIZES
from engine_adapter.client.http import HttpEngineClient
from store.models import File
from store.session import Database
from tests.fixtures.batches import (
    Bench,
    add_project,
    add_validating,
    events_of,
    file_lines,
    line,
    read_batch,
)

PATIENCE_S = 8.0  # less than a lease
MINE = "proj_default"
NUM = 2 * stage_work.NUM_TOGETHER


class _Store(MemoryFileStore):
    """Some objects cannot be read or written; others are never done."""

    def __init__(self) -> None:
        super().__init__()
        self.broken: set[str] = set()
        self.stuck: set[str] = set()

    async def stream(
        self, key: str, *, offset: int = 0, length: int | None = None
    ) -> AsyncGenerator[bytes, None]:
        await self._fail(key)
        async for chunk in super().stream(key, offset=offset, length=length):
            yield chunk

    async def put(self, key: str, chunks: AsyncIterator[bytes]) -> StoredObject:
        await self._fail(key)
        return await super().put(key, chunks)

    async def _fail(self, key: str) -> None:
        if key in self.stuck:
            await asyncio.Event().wait()
        if key in self.broken:
            raise OSError("broken")


@pytest.fixture
def store(bench: Bench) -> _Store:
    bench.file_store = _Store()
    return bench.file_store


@contextmanager
def _counted(database: Database) -> Iterator[list[str]]:
    """What was committed meanwhile, and every statement."""
    seen: list[str] = []

    def on_commit(_: object) -> None:
        seen.append("COMMIT")

    def on_statement(_: object, __: object, statement: str, *___: object) -> None:
        seen.append(statement)

    engine = database.engine.sync_engine
    event.listen(engine, "commit", on_commit)
    event.listen(engine, "before_cursor_execute", on_statement)
    try:
        yield seen
    finally:
        event.remove(engine, "commit", on_commit)
        event.remove(engine, "before_cursor_execute", on_statement)


async def _validating(bench: Bench, num: int = 1, *, raw: bytes | None = None) -> list[str]:
    return [
        await add_validating(bench.database, bench.file_store, [raw or line("a")])
        for _ in range(num)
    ]


async def _statuses(bench: Bench, batch_ids: list[str]) -> list[str]:
    return [(await read_batch(bench.database, one)).status for one in batch_ids]


async def test_dozens_cost_a_few_transactions(bench: Bench, engine: HttpEngineClient) -> None:
    made = await _validating(bench, NUM)
    with _counted(bench.database) as validating:
        assert await bench.work() == NUM
    assert set(await _statuses(bench, made)) == {"in_progress"}
    await bench.dispatch(engine)
    assert set(await _statuses(bench, made)) == {"finalizing"}
    with _counted(bench.database) as finalizing:
        assert await bench.work() == NUM
    for seen in (validating, finalizing):
        assert seen.count("COMMIT") < NUM / 4
        assert len(seen) < 2 * NUM
    for batch_id in made:
        batch = await read_batch(bench.database, batch_id)
        assert batch.status == "completed"
        assert batch.output_file_id == produced_file_id(batch_id, "output")
        (answer,) = await file_lines(bench.file_store, batch.output_file_id)
        assert answer["custom_id"] == "a"
        assert await events_of(bench.database, batch_id) == [
            "created", "in_progress", "finalizing", "completed",
        ]  # fmt: skip


async def test_files_are_those_of_a_run_of_its_own(
    bench: Bench, engine: HttpEngineClient, database: Database
) -> None:
    lines = [line("a"), line("b", "fake:status=400"), line("c")]
    both = [await add_validating(database, bench.file_store, lines) for _ in range(2)]
    for batch_id in both:
        await validate(database, bench.file_store, batch_id)
    await bench.dispatch(engine)
    together, alone = both
    assert await finalize_small.finalize_small(database, bench.file_store, [together]) == {together}
    assert await finalize(database, bench.file_store, alone) == "completed"
    told = []
    for batch_id in both:
        batch = await read_batch(database, batch_id)
        async with database.unit_of_work() as session:
            listed = [
                await session.get_one(File, one)
                for one in (batch.output_file_id, batch.error_file_id)
            ]
        assert {file.project_id for file in listed} == {MINE}
        told.append(
            [
                (
                    file.filename.removeprefix(batch_id),
                    file.purpose,
                    file.part_bytes,
                    [one["custom_id"] for one in await file_lines(bench.file_store, file.id)],
                )
                for file in listed
            ]
        )
    assert told[0] == told[1]


async def test_faults_of_one_are_its_own(bench: Bench) -> None:
    good = await _validating(bench, 3)
    (bad,) = await _validating(bench, raw=b"{}")
    await bench.work()
    assert await _statuses(bench, good) == ["in_progress"] * 3
    failed = await read_batch(bench.database, bad)
    assert failed.status == "failed"
    assert failed.errors


@pytest.mark.parametrize("how", ["broken", "stuck"])
async def test_a_file_that_cannot_be_read_keeps_no_other_waiting(
    bench: Bench, store: _Store, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(validate_small, "READ_LIMIT_S", 0.05)
    bad, *good = await _validating(bench, 4)
    getattr(store, how).add((await read_batch(bench.database, bad)).input_file_id)
    found = await validate_small.validate_small(bench.database, store, [bad, *good])
    assert set(found) == set(good), "the other one is left to a run of its own"
    assert await _statuses(bench, [bad, *good]) == ["validating"] + ["in_progress"] * 3


@pytest.mark.parametrize("how", ["broken", "stuck"])
async def test_a_file_that_cannot_be_written_keeps_no_other_waiting(
    bench: Bench,
    store: _Store,
    engine: HttpEngineClient,
    how: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(finalize_small, "WRITE_LIMIT_S", 0.05)
    bad, *good = await _validating(bench, 4)
    await bench.work()
    await bench.dispatch(engine)
    getattr(store, how).add(produced_file_id(bad, "output"))
    assert await finalize_small.finalize_small(bench.database, store, [bad, *good]) == set(good)
    assert await _statuses(bench, [bad, *good]) == ["finalizing"] + ["completed"] * 3
    getattr(store, how).clear()
    assert await bench.work() == 1
    assert await _statuses(bench, [bad]) == ["completed"]


async def test_one_that_another_has_is_passed_over(bench: Bench, database: Database) -> None:
    held, free = await _validating(bench, 2)
    async with database.unit_of_work() as session:
        await session.execute(text("SELECT 1 FROM batches WHERE id = :id FOR UPDATE"), {"id": held})
        found = await validate_small.validate_small(database, bench.file_store, [held, free])
    assert set(found) == {free}
    async with database.unit_of_work() as session:
        await cancel(session, MINE, held)
    assert await validate_small.validate_small(database, bench.file_store, [held]) == {}
    async with database.unit_of_work() as session:
        assert await session.scalar(text("SELECT count(*) FROM batch_rows")) == 1


async def test_a_finalization_that_another_has_is_passed_over(
    bench: Bench, engine: HttpEngineClient, database: Database
) -> None:
    made = await _validating(bench, 2)
    await bench.work()
    await bench.dispatch(engine)
    both = await asyncio.gather(
        *(finalize_small.finalize_small(database, bench.file_store, made) for _ in range(2))
    )
    assert sorted(one for found in both for one in found) == sorted(made)
    for batch_id in made:
        assert (await events_of(database, batch_id)).count("completed") == 1


async def test_together_they_take_no_more_than_the_quota(bench: Bench, database: Database) -> None:
    made = await _validating(bench, 3)
    await add_project(database, "proj_other")
    (other,) = [
        await add_validating(database, bench.file_store, [line("a")], project_id="proj_other")
    ]
    await validate(database, bench.file_store, made[0])
    async with database.unit_of_work() as session:
        of_one = await session.scalar(text("SELECT num_tokens FROM batch_rows"))
    found = await validate_small.validate_small(
        database, bench.file_store, [*made[1:], other], enqueued_token_limit=2 * of_one
    )
    assert sorted(found[one] for one in made[1:]) == ["failed", "in_progress"]
    assert found[other] == "in_progress"


async def test_what_the_database_refuses_together_is_run_one_by_one(
    bench: Bench, database: Database
) -> None:
    """A trigger refuses the rows of one batch: the others are validated all the same."""
    bad, *good = await _validating(bench, 3)
    async with database.unit_of_work() as session:
        await session.execute(
            text(
                "CREATE FUNCTION refuse() RETURNS trigger AS $$ BEGIN"
                " RAISE string_data_right_truncation; END $$ LANGUAGE plpgsql"
            )
        )
        await session.execute(
            text(
                "CREATE TRIGGER refuse BEFORE INSERT ON batch_rows FOR EACH ROW"
                f" WHEN (NEW.batch_id = '{bad}') EXECUTE FUNCTION refuse()"
            )
        )
    await bench.work()
    assert await _statuses(bench, good) == ["in_progress"] * 2
    assert await _statuses(bench, [bad]) == ["failed"]


async def test_small_ones_do_not_wait_for_a_long_run_of_the_same_claim(
    bench: Bench, store: _Store, engine: HttpEngineClient
) -> None:
    (small,) = await _validating(bench)
    (large,) = await _validating(bench, raw=line("a", "x" * 2 * SIZES.small_bytes))
    store.stuck.add((await read_batch(bench.database, large)).input_file_id)
    working = asyncio.ensure_future(bench.work())
    try:
        async with asyncio.timeout(PATIENCE_S):
            while await _statuses(bench, [small]) != ["in_progress"]:
                await asyncio.sleep(0.05)
            await bench.dispatch(engine)
            while await _statuses(bench, [small]) != ["completed"]:
                await bench.work()  # another worker
                await asyncio.sleep(0.05)
        assert await _statuses(bench, [large]) == ["validating"]
        assert not working.done()
    finally:
        working.cancel()
        await asyncio.wait([working])
