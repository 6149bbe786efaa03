"""COMMIT is applied and its answer is lost, two hundred times, in every kind of transaction.

Whoever asked does what it does after an error: clients and the sweep ask again, the dispatcher and
the usage recorder repeat themselves. Then no listed file lacks its content, no line is answered
twice or never, and usage is what the engine served, to the token.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from sqlalchemy import select, text
from sqlalchemy.exc import InterfaceError, OperationalError

from api.batch_errors import FileNotFound
from api.batch_shapes import CreateBatch
from api.usage import TokenUsage
from batch.files.memory import MemoryFileStore
from batch.finish.collect import collect_files, delete_file
from batch.finish.finalize import finalize
from batch.intake import idempotency
from batch.intake.arrivals import StoredArrivals, collect_arrivals
from batch.intake.upload import receive
from batch.intake.validate import validate
from batch.run.claim import RowClaimer
from batch.states import BatchStatus
from engine_adapter.client.http import HttpEngineClient
from engine_adapter.scheduling.request import RequestClass
from gateway.auth.principal import Principal
from gateway.auth.usage import UsageRecorder
from gateway.observability.metrics import Metrics
from service.clock import SystemClock
from store.models import DEFAULT_PROJECT_ID, File
from store.repositories import usage as usages
from store.session import Database
from tests.fakes.seams import MemoryQueue
from tests.fixtures.batches import MODEL, PATIENCE_S, PATIENT, Bench, add_batch, line, read_batch
from tests.fixtures.commit_proxy import CommitProxy, commit_proxy
from tests.fixtures.steered_engine import SteeredEngine
from tests.integration.batch.test_usage import tokens_of

NUM_DROPS = 200
NUM_ROWS = 12
KINDS = {"upload", "create", "validate", "dispatch", "finalize", "usage", "delete", "collect"}
T = TypeVar("T")


class HastyClock(SystemClock):
    """Time runs fifty times as fast: what is repeated is repeated soon."""

    def monotonic(self) -> float:
        return super().monotonic() * 50

    async def sleep(self, duration_s: float) -> None:
        await asyncio.sleep(duration_s / 50)


@dataclass
class Part:
    name: str
    value: bytes
    filename: str | None = None

    async def chunks(self) -> AsyncIterator[bytes]:
        yield self.value

    async def text(self) -> str:
        return self.value.decode()


class Life:
    """A client, the workers and a gateway, over a server whose word is not to be relied on."""

    def __init__(self, proxy: CommitProxy, engine: HttpEngineClient) -> None:
        self.database = Database(proxy.url, ask_first=False)
        self.store = MemoryFileStore()
        self.recorder = UsageRecorder(self.database, Metrics())
        self.online = TokenUsage()
        self.batches: list[str] = []
        self._proxy = proxy
        self._engine = engine
        self._bench = Bench(self.database, self.store, MemoryQueue(), HastyClock())

    async def _until_answered(self, kind: str, ask: Callable[[], Awaitable[T]]) -> T:
        while True:
            self._proxy.kind = kind
            try:
                return await ask()
            except (OperationalError, InterfaceError):
                continue

    async def upload(self, key: str) -> str:
        """What `POST /v1/files` does, asked again under one key until it answers."""
        data = b"".join(line(f"r{n}") + b"\n" for n in range(NUM_ROWS))

        async def ask() -> str:
            async def parts() -> AsyncIterator[Part]:
                yield Part("purpose", b"batch")
                yield Part("file", data, "in.jsonl")

            known = StoredArrivals(self.database)
            received = await receive(parts(), self.store, known)
            async with self.database.unit_of_work() as session:
                file = await idempotency.record_file(session, received, DEFAULT_PROJECT_ID, key=key)
            return file.id

        return await self._until_answered("upload", ask)

    async def one_batch(self, number: int) -> None:
        """A batch from upload to the deletion of its input."""
        file_id = await self.upload(f"file {number}")
        wanted = CreateBatch(
            input_file_id=file_id, endpoint="/v1/chat/completions", completion_window="24h"
        )

        async def create() -> str:
            async with self.database.unit_of_work() as session:
                batch, _ = await idempotency.create_batch(
                    session, DEFAULT_PROJECT_ID, wanted, key_id=None, key=f"batch {number}"
                )
            return batch.id

        batch_id = await self._until_answered("create", create)
        self.batches.append(batch_id)
        await self._until_answered("validate", lambda: self._stage(validate, batch_id))
        await self._dispatch(batch_id)
        await self._until_answered("finalize", lambda: self._stage(finalize, batch_id))
        self._chat()
        self._proxy.kind = "usage"
        while not await self.recorder.flush():
            self._chat()  # it goes on meanwhile
        await self._until_answered("delete", lambda: self._delete(file_id))
        await self._until_answered("collect", self._collect)

    async def _stage(self, stage: Callable[..., Awaitable[object]], batch_id: str) -> None:
        await stage(self.database, self.store, batch_id)

    async def _dispatch(self, batch_id: str) -> None:
        self._proxy.kind = "dispatch"
        while (await read_batch(self.database_behind, batch_id)).status == BatchStatus.IN_PROGRESS:
            try:
                held = await self._bench.lease(self._engine.url, PATIENT)
                await self._bench.dispatcher(held, self._engine).run()
            except (OperationalError, InterfaceError, AssertionError):
                async with self.database_behind.unit_of_work() as session:
                    # What the next sweep does, six seconds later.
                    await session.execute(text("DELETE FROM dispatchers"))

    async def _delete(self, file_id: str) -> None:
        try:
            async with self.database.unit_of_work() as session:
                await delete_file(session, DEFAULT_PROJECT_ID, file_id)
        except FileNotFound:
            return

    async def _collect(self) -> None:
        await collect_files(self.database, self.store)
        await collect_arrivals(self.database, self.store)

    def _chat(self) -> None:
        used = TokenUsage(3, 5)
        self.recorder.add(Principal(DEFAULT_PROJECT_ID, "key_1"), "m", RequestClass.ONLINE, used)
        self.online = TokenUsage(self.online.prompt_tokens + 3, self.online.completion_tokens + 5)

    database_behind: Database


async def test_every_kind_of_transaction(
    database: Database,
    database_url: str,
    engine: HttpEngineClient,
    fake_engine: SteeredEngine,
) -> None:
    async with commit_proxy(database_url) as proxy:
        life = Life(proxy, engine)
        life.database_behind = database
        number = 0
        while proxy.dropped.total() < NUM_DROPS or set(proxy.dropped) < KINDS:
            number += 1
            await life.one_batch(number)
        await life.database.dispose()
    await _nothing_is_listed_without_content(database, life.store)
    for batch_id in life.batches:
        batch = await read_batch(database, batch_id)
        assert (batch.status, batch.num_completed) == ("completed", NUM_ROWS)
    async with database.unit_of_work() as session:
        used = await usages.list_for(session, DEFAULT_PROJECT_ID)
        stored = await session.scalar(text("SELECT count(*) FROM row_results"))
    assert stored == len(life.batches) * NUM_ROWS
    rows = {row.request_class: row for row in used}
    assert tokens_of([rows["online"]]) == life.online
    assert tokens_of([rows["offline"]]) == fake_engine.served["offline"]
    assert rows["offline"].num_requests == len(life.batches) * NUM_ROWS
    # What nobody can list goes too, once it is old.
    await collect_arrivals(database, life.store, older_than_s=0)
    async with database.unit_of_work() as session:
        found = await session.scalars(select(File.storage_key).where(File.collected_at.is_(None)))
        assert set(life.store.keys()) == set(found)


async def _nothing_is_listed_without_content(database: Database, store: MemoryFileStore) -> None:
    async with database.unit_of_work() as session:
        found = await session.execute(select(File).where(File.deleted_at.is_(None)))
        listed = found.scalars().all()
    assert listed
    for file in listed:
        assert await store.size(file.storage_key) == file.size_bytes


async def test_a_claim_without_an_answer_is_made_again(
    database: Database, database_url: str
) -> None:
    """Its rows are the dispatcher's, which does not know: they wait for as long as it lives."""
    async with commit_proxy(database_url) as proxy:
        proxy.share = 0
        unsure = Database(proxy.url, ask_first=False)
        bench = Bench(unsure)
        await add_batch(database, bench.file_store, [line(f"r{n}") for n in range(NUM_ROWS)])
        held = await bench.lease("http://127.0.0.1:1", PATIENT)
        source = RowClaimer(held.id, unsure, bench.file_store, bench.clock)
        proxy.share = 1
        assert not (await source.take([MODEL], NUM_ROWS, {})).ready
        assert proxy.dropped.total() == 1
        proxy.share = 0
        taken: set[str] = set()
        async with asyncio.timeout(PATIENCE_S):
            while len(taken) < NUM_ROWS:  # the pooled connections that were lost fail once each
                taken |= {one.row.custom_id for one in (await source.take([MODEL], 99, {})).ready}
        await unsure.dispose()
