"""Random lives of input files: what a live batch reads is never collected, what nobody reads is."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy import text

from api.batch_errors import FileInUse, FileNotFound, InvalidInputFile
from api.batch_shapes import CreateBatch
from api.errors import Conflict
from batch.files.memory import MemoryFileStore
from batch.finish.cancel import cancel
from batch.finish.collect import collect_files, delete_file
from batch.finish.finalize import finalize
from batch.intake.create import create
from batch.intake.validate import validate
from batch.rerun import retry_failed
from batch.states import LIVE_BATCH
from batch.steer import pause, resume
from engine_adapter.client.base import CHAT_PATH
from store.models import DEFAULT_PROJECT_ID
from store.session import Database
from tests.fixtures.batches import add_file, end_window, line

T = TypeVar("T")
WHICH = st.integers(0, 7)


def request(file_id: str) -> CreateBatch:
    return CreateBatch(endpoint=CHAT_PATH, completion_window="24h", input_file_id=file_id)


class InputLives(RuleBasedStateMachine):
    """A few files, batches that read them, and a collector."""

    url = ""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.database = Database(self.url)
        self.store = MemoryFileStore()
        self.files: list[str] = []
        self.batches: list[str] = []
        self.run(self._sql("TRUNCATE batches, files CASCADE"))

    def run(self, stage: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(stage)

    def teardown(self) -> None:
        self.run(self.database.dispose())
        self.runner.close()

    async def _sql(self, statement: str, **values: object) -> list[Any]:
        async with self.database.unit_of_work() as session:
            found = await session.execute(text(statement), values)
            return list(found) if found.returns_rows else []  # type: ignore[attr-defined]

    @initialize()
    def begin_with_a_file(self) -> None:
        self.upload()

    @rule()
    def upload(self) -> None:
        if len(self.files) < 4:
            data = line("a") + b"\n"
            self.files.append(self.run(add_file(self.database, self.store, data)))

    @rule(which=WHICH)
    def create_batch(self, which: int) -> None:
        async def create_one() -> str:
            async with self.database.unit_of_work() as session:
                file_id = self.files[which % len(self.files)]
                return (await create(session, DEFAULT_PROJECT_ID, request(file_id))).id

        with suppress(InvalidInputFile):
            self.batches.append(self.run(create_one()))

    @rule(which=WHICH)
    def expire_file(self, which: int) -> None:
        past = "UPDATE files SET expires_at = statement_timestamp() WHERE id = :id"
        self.run(self._sql(past, id=self.files[which % len(self.files)]))

    @rule(which=WHICH)
    def delete(self, which: int) -> None:
        async def delete_one() -> None:
            async with self.database.unit_of_work() as session:
                await delete_file(session, DEFAULT_PROJECT_ID, self.files[which % len(self.files)])

        with suppress(FileInUse, FileNotFound):
            self.run(delete_one())

    @rule(which=WHICH, step=st.sampled_from(["validate", "cancel", "end", "finalize"]))
    def move_on(self, which: int, step: str) -> None:
        if not self.batches:
            return
        batch_id = self.batches[which % len(self.batches)]
        if step == "validate":
            self.run(validate(self.database, self.store, batch_id))
        elif step == "end":
            self.run(end_window(self.database, batch_id))
        elif step == "finalize":
            self.run(finalize(self.database, self.store, batch_id))
        else:
            self.run(self._steer(cancel, batch_id))

    @rule(which=WHICH, how=st.sampled_from([pause, resume, retry_failed]))
    def steer(self, which: int, how: Any) -> None:
        if self.batches:
            made = self.run(self._steer(how, self.batches[which % len(self.batches)]))
            if made is not None and made.id not in self.batches:
                self.batches.append(made.id)

    async def _steer(self, how: Any, batch_id: str) -> Any:
        with suppress(Conflict):
            async with self.database.unit_of_work() as session:
                return await how(session, DEFAULT_PROJECT_ID, batch_id)

    @rule()
    def collect(self) -> None:
        self.run(collect_files(self.database, self.store))
        left = self.run(
            self._sql(
                "SELECT f.storage_key FROM files f"
                " WHERE (f.deleted_at IS NOT NULL OR f.expires_at <= statement_timestamp())"
                " AND NOT EXISTS (SELECT 1 FROM batches b WHERE b.input_file_id = f.id"
                "                 AND b.status = ANY(:live))",
                live=sorted(LIVE_BATCH),
            )
        )
        assert not {row.storage_key for row in left} & set(self.store.keys())

    @invariant()
    def live_batches_have_their_input(self) -> None:
        needed = self.run(
            self._sql(
                "SELECT f.storage_key FROM batches b JOIN files f ON f.id = b.input_file_id"
                " WHERE b.status = ANY(:live)",
                live=sorted(LIVE_BATCH),
            )
        )
        assert {row.storage_key for row in needed} <= set(self.store.keys())


def test_random_lives_of_inputs(database_url: str) -> None:
    InputLives.url = database_url
    run_state_machine_as_test(
        InputLives,
        settings=settings(
            max_examples=30,
            stateful_step_count=30,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


async def test_a_file_that_expires_while_a_batch_is_created_stays(database: Database) -> None:
    store = MemoryFileStore()
    file_id = await add_file(database, store, line("a") + b"\n")
    async with database.unit_of_work() as session:
        soon = "statement_timestamp() + interval '3 s'"
        await session.execute(
            text(f"UPDATE files SET expires_at = {soon} WHERE id = :id"), {"id": file_id}
        )
    async with database.unit_of_work() as creation:
        await create(creation, DEFAULT_PROJECT_ID, request(file_id))
        await asyncio.sleep(3.1)
        assert await collect_files(database, store) == 0
    assert await collect_files(database, store) == 0
    assert store.keys() == [file_id]
