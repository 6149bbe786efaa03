"""Creation and validation on a real database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import orjson
import pytest
from sqlalchemy import select, text

from api.batch_shapes import BatchObject, CreateBatch
from batch.files.memory import MemoryFileStore
from batch.intake.check import MAX_REPORTED_FAULTS
from batch.intake.create import create
from batch.intake.upload import Upload, record
from batch.intake.validate import validate
from batch.states import BatchStatus
from batch.transition import move
from store.models import DEFAULT_PROJECT_ID, Batch, BatchEvent, BatchRow, Engine
from store.repositories import arrival as arrivals
from store.repositories import validation
from store.session import Database
from store.types import new_id
from tests.fakes.seams import ManualClock

CHAT = "/v1/chat/completions"


def line(custom_id: str, *, model: str = "m", **body: Any) -> bytes:
    messages = [{"role": "user", "content": "hi"}]
    return orjson.dumps(
        {
            "custom_id": custom_id,
            "method": "POST",
            "url": CHAT,
            "body": {"model": model, "messages": messages, **body},
        }
    )


async def submit(db: Database, store: MemoryFileStore, data: bytes) -> str:
    async def chunks() -> AsyncIterator[bytes]:
        yield data

    file_id = new_id("file-")
    stored = await store.put(file_id, chunks())
    async with db.unit_of_work() as session:
        await arrivals.announce(session, file_id)
        await record(
            session, Upload(file_id, "in.jsonl", "batch", stored, 86400), DEFAULT_PROJECT_ID
        )
        batch = await create(
            session,
            DEFAULT_PROJECT_ID,
            CreateBatch(input_file_id=file_id, endpoint=CHAT, completion_window="24h"),
        )
    return batch.id


async def look(db: Database, batch_id: str) -> tuple[BatchObject, list[BatchRow]]:
    async with db.unit_of_work() as session:
        batch = await session.get_one(Batch, batch_id)
        query = select(BatchRow).where(BatchRow.batch_id == batch_id).order_by(BatchRow.id)
        rows = list((await session.execute(query)).scalars())
        return BatchObject.of(batch), rows


async def events(db: Database, batch_id: str) -> list[str]:
    async with db.unit_of_work() as session:
        query = select(BatchEvent.event).where(BatchEvent.batch_id == batch_id)
        return list((await session.execute(query.order_by(BatchEvent.id))).scalars())


@pytest.fixture
def store() -> MemoryFileStore:
    return MemoryFileStore()


async def test_a_good_file_becomes_pending_rows(database: Database, store: MemoryFileStore) -> None:
    data = line("b") + b"\r\n\n" + line("a") + b"\n"
    batch_id = await submit(database, store, data)
    before, _ = await look(database, batch_id)
    assert (before.status, before.usage, before.errors) == ("validating", None, None)
    assert before.expires_at == before.created_at + 86400

    assert await validate(database, store, batch_id) == BatchStatus.IN_PROGRESS

    batch, rows = await look(database, batch_id)
    assert (batch.status, batch.model, batch.request_counts.total) == ("in_progress", "m", 2)
    assert batch.in_progress_at is not None
    assert batch.errors is None
    assert [(row.custom_id, row.line_no, row.status) for row in rows] == [
        ("b", 1, "pending"),
        ("a", 3, "pending"),
    ]
    for row in rows:
        raw = data[row.offset_bytes : row.offset_bytes + row.length_bytes]
        assert orjson.loads(raw)["custom_id"] == row.custom_id
    assert await events(database, batch_id) == ["created", "in_progress"]


@pytest.mark.contract("B-26", "B-27")
async def test_one_bad_line_means_no_rows_and_every_error(
    database: Database, store: MemoryFileStore
) -> None:
    data = b"\n".join([line("a"), b"{", line("a"), line("b", stream=True)])
    batch_id = await submit(database, store, data)
    assert await validate(database, store, batch_id) == BatchStatus.FAILED
    batch, rows = await look(database, batch_id)
    assert rows == []
    assert batch.status == "failed"
    assert batch.failed_at is not None
    assert (batch.output_file_id, batch.error_file_id) == (None, None)
    assert batch.request_counts.model_dump() == {"total": 0, "completed": 0, "failed": 0}
    assert batch.errors is not None
    assert [(fault.code, fault.line) for fault in batch.errors.data] == [
        ("invalid_json_line", 2),
        ("duplicate_custom_id", 3),
        ("streaming_unsupported", 4),
    ]
    assert await events(database, batch_id) == ["created", "failed"]


async def test_hostile_names_and_ids_can_be_stored(
    database: Database, store: MemoryFileStore
) -> None:
    """Whatever a line holds, validation ends: nothing may leave a batch in it for ever."""
    odd: dict[str, Any] = {"\0": 1, "logit_bias": {"\0": 1}}
    hostile = [
        line("a", metadata={"a\0b": 3}),
        line("b\0"),
        line("c", model="m\0"),
        line("d", **odd),
        b'{"custom_id": "\\ud800"}',
        line("é" * 512),
    ]
    batch_id = await submit(database, store, b"\n".join(hostile))
    assert await validate(database, store, batch_id) == BatchStatus.FAILED
    batch, _ = await look(database, batch_id)
    assert batch.errors is not None
    assert {fault.line for fault in batch.errors.data} == {1, 2, 3, 4, 5}
    longest = await submit(database, store, line("\U0001f642" * 512))
    assert await validate(database, store, longest) == BatchStatus.IN_PROGRESS


async def test_more_errors_than_the_cap(database: Database, store: MemoryFileStore) -> None:
    batch_id = await submit(database, store, b"{\n" * (MAX_REPORTED_FAULTS + 7))
    await validate(database, store, batch_id)
    batch, _ = await look(database, batch_id)
    assert batch.errors is not None
    assert len(batch.errors.data) == MAX_REPORTED_FAULTS + 1


async def test_it_may_run_twice(database: Database, store: MemoryFileStore) -> None:
    batch_id = await submit(database, store, line("a"))
    assert await validate(database, store, batch_id) == BatchStatus.IN_PROGRESS
    assert await validate(database, store, batch_id) is None
    assert len((await look(database, batch_id))[1]) == 1
    assert await validate(database, store, "batch_unknown") is None


class PausedStore(MemoryFileStore):
    """Stops in the middle of a stream until it is told to go on."""

    def __init__(self) -> None:
        super().__init__()
        self.reading = asyncio.Event()
        self.go_on = asyncio.Event()

    async def stream(self, key: str, *, offset: int = 0, length: int | None = None) -> Any:
        self.reading.set()
        await self.go_on.wait()
        async for chunk in super().stream(key, offset=offset, length=length):
            yield chunk


async def test_two_at_once_read_the_file_once(database: Database) -> None:
    store = PausedStore()
    batch_id = await submit(database, store, line("a"))
    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(validate(database, store, batch_id))
        await store.reading.wait()
        assert await validate(database, store, batch_id) is None
        store.go_on.set()
    assert first.result() == BatchStatus.IN_PROGRESS


@pytest.mark.parametrize("good", [True, False])
async def test_a_cancel_does_not_wait_and_wins(database: Database, good: bool) -> None:
    store = PausedStore()
    batch_id = await submit(database, store, line("a") if good else b"{")
    async with asyncio.TaskGroup() as tasks:
        validation = tasks.create_task(validate(database, store, batch_id))
        await store.reading.wait()
        async with asyncio.timeout(30), database.unit_of_work() as session:
            assert await move(session, batch_id, BatchStatus.CANCELLING)
        store.go_on.set()
    assert validation.result() is None
    batch, rows = await look(database, batch_id)
    assert (batch.status, batch.errors, rows) == ("cancelling", None, [])


async def test_no_table_is_locked_while_the_file_is_read(database: Database) -> None:
    """A migration need not wait for a store however slow."""
    store = PausedStore()
    batch_id = await submit(database, store, line("a"))
    async with asyncio.TaskGroup() as tasks:
        reading = tasks.create_task(validate(database, store, batch_id))
        await store.reading.wait()
        async with database.unit_of_work() as session:
            await session.execute(
                text("LOCK batches, files, engines, projects IN ACCESS EXCLUSIVE MODE NOWAIT")
            )
        assert await validate(database, store, batch_id) is None, "the first one has it"
        store.go_on.set()
    assert reading.result() is BatchStatus.IN_PROGRESS


class EndlessStore(MemoryFileStore):
    """A minute for each piece of a file without end; the batch is cancelled in the 100th minute."""

    def __init__(self, database: Database, clock: ManualClock) -> None:
        super().__init__()
        self._database = database
        self._clock = clock
        self.batch_id = ""
        self.num_pieces = 0

    async def stream(
        self, key: str, *, offset: int = 0, length: int | None = None
    ) -> AsyncGenerator[bytes, None]:
        while True:
            self.num_pieces += 1
            self._clock.advance(60.0)
            if self.num_pieces == 100:
                async with self._database.unit_of_work() as session:
                    await move(session, self.batch_id, BatchStatus.CANCELLING)
            yield line(f"line-{self.num_pieces}") + b"\n"


async def test_it_reads_for_as_long_as_the_batch_wants_it(database: Database) -> None:
    clock = ManualClock()
    store = EndlessStore(database, clock)
    store.batch_id = await submit(database, store, line("a"))
    assert await validate(database, store, store.batch_id, clock=clock) is None
    assert store.num_pieces == 100
    batch, rows = await look(database, store.batch_id)
    assert (batch.status, rows) == ("cancelling", [])


class DyingStore(MemoryFileStore):
    """Fails in the middle of a stream, as a worker that is killed would."""

    async def stream(self, key: str, *, offset: int = 0, length: int | None = None) -> Any:
        yield line("a") + b"\n"
        raise ConnectionError("died")


async def test_one_that_died_leaves_nothing_and_is_repeated(database: Database) -> None:
    dying, store = DyingStore(), MemoryFileStore()
    batch_id = await submit(database, store, line("a"))
    with pytest.raises(ConnectionError):
        await validate(database, dying, batch_id)
    batch, rows = await look(database, batch_id)
    assert (batch.status, rows) == ("validating", [])
    assert await validate(database, store, batch_id) == BatchStatus.IN_PROGRESS


async def test_bytes_that_are_gone(database: Database, store: MemoryFileStore) -> None:
    batch_id = await submit(database, store, line("a"))
    assert await validate(database, MemoryFileStore(), batch_id) == BatchStatus.FAILED
    batch, _ = await look(database, batch_id)
    assert batch.errors is not None
    assert [fault.code for fault in batch.errors.data] == ["input_file_missing"]


@pytest.mark.parametrize(("served", "status"), [("m", "in_progress"), ("other", "failed")])
@pytest.mark.contract("B-18")
async def test_models_of_engines_that_were_seen(
    database: Database, store: MemoryFileStore, served: str, status: str
) -> None:
    async with database.unit_of_work() as session:
        session.add(Engine(url="http://engine", model=served))
        session.add(Engine(url="http://unseen", model=None))
    batch_id = await submit(database, store, line("a"))
    assert await validate(database, store, batch_id) == status
    batch, _ = await look(database, batch_id)
    if batch.errors is not None:
        assert [(fault.code, fault.line) for fault in batch.errors.data] == [("model_not_found", 1)]


async def test_a_stopped_validation_is_ended_by_the_server(database: Database) -> None:
    """The transaction that holds the validation carries its own idle limit."""
    async with database.unit_of_work() as session:
        assert await validation.try_exclusive(session, "batch_x", idle_limit_s=60)
        limit = await session.scalar(
            text("SELECT current_setting('idle_in_transaction_session_timeout')")
        )
        assert limit == "1min"


async def test_an_alias_stands_for_the_first_model_that_is_known(
    database: Database, store: MemoryFileStore
) -> None:
    async with database.unit_of_work() as session:
        session.add(Engine(url="http://engine", model="real"))
    batch_id = await submit(database, store, line("a"))
    aliases = {"m": ("away", "real")}
    assert await validate(database, store, batch_id, aliases=aliases) == "in_progress"
    batch, _ = await look(database, batch_id)
    assert batch.model == "real"


async def test_an_alias_of_nothing_that_is_known_is_no_model(
    database: Database, store: MemoryFileStore
) -> None:
    async with database.unit_of_work() as session:
        session.add(Engine(url="http://engine", model="real"))
    batch_id = await submit(database, store, line("a"))
    assert await validate(database, store, batch_id, aliases={"m": ("away",)}) == "failed"
