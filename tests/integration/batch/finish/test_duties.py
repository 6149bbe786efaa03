"""Each kind of object is collected by itself: what cannot be removed delays nothing else."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import text

from batch.files.local import LocalFileStore
from batch.files.memory import MemoryFileStore
from batch.finish.collect import collect_files
from batch.finish.duties import duties, fulfil
from batch.removal import COLLECT_AT_ONCE, STEP_ROWS, Budget, removed
from service.clock import SystemClock
from store.models import DEFAULT_PROJECT_ID, File
from store.repositories import arrival as arrivals
from store.repositories import conversation as conversations
from store.repositories import overdue
from store.repositories import response as responses
from store.repositories.response import NewResponse
from store.session import Database
from store.types import new_id

DAY_S = 86400.0


class NothingGoes(MemoryFileStore):
    """A store that can delete none of its objects, and says so by an error of any kind."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    async def delete(self, key: str) -> None:
        raise self.error

    async def discard_interrupted(self, *, older_than_s: float) -> int:
        raise self.error


async def add_gone(database: Database, number: int) -> list[str]:
    ids = [new_id("file-") for _ in range(number)]
    async with database.unit_of_work() as session:
        for file_id in ids:
            session.add(
                File(
                    id=file_id,
                    project_id=DEFAULT_PROJECT_ID,
                    purpose="batch",
                    filename="x",
                    size_bytes=1,
                    sha256="",
                    storage_key=file_id,
                )
            )
        await session.flush()
        await session.execute(
            text("UPDATE files SET deleted_at = statement_timestamp() - interval '3 hours'")
        )
    return ids


async def add_expired(database: Database, number: int) -> None:
    async with database.unit_of_work() as session:
        for _ in range(number):
            new = NewResponse(new_id("resp_"), None, b"{}", b"[]", [])
            await responses.add(session, DEFAULT_PROJECT_ID, new, timedelta(hours=-3))
        made = await conversations.add(
            session, DEFAULT_PROJECT_ID, new_id("conv_"), {}, timedelta(hours=-3)
        )
        await conversations.append(session, made, [("a", b"{}")], timedelta(hours=-3))


async def num_of(database: Database, table: str) -> int:
    async with database.unit_of_work() as session:
        return int(await session.scalar(text(f"SELECT count(*) FROM {table}")) or 0)


@pytest.mark.parametrize(
    "error", [PermissionError("immutable"), IsADirectoryError("no file"), RuntimeError("a fault")]
)
async def test_prompts_expire_whatever_the_file_store_refuses(
    database: Database, error: Exception
) -> None:
    await add_gone(database, 3)
    async with database.unit_of_work() as session:
        await arrivals.announce(session, "x")
        await session.execute(text("UPDATE arrivals SET created_at = now() - interval '9 days'"))
    await add_expired(database, STEP_ROWS + 1)
    async with database.snapshot() as session:
        late = await overdue.by_kind(session)
    assert late == {
        "responses": STEP_ROWS + 1,
        "conversations": 1,
        "files": 3,
        "parts": 0,
        "arrivals": 1,
    }
    all_of = duties(database, NothingGoes(error), SystemClock(), retention_s=90 * DAY_S)
    with pytest.raises(type(error)):  # the leftovers, at least
        await fulfil(all_of)
    assert await num_of(database, "responses") == 0
    assert await num_of(database, "conversations") == 0
    assert await num_of(database, "conversation_items") == 0
    async with database.snapshot() as session:
        late = await overdue.by_kind(session)
    assert late == {"responses": 0, "conversations": 0, "files": 3, "parts": 0, "arrivals": 1}
    await fulfil(duties(database, MemoryFileStore(), SystemClock(), retention_s=90 * DAY_S))
    async with database.snapshot() as session:
        assert set((await overdue.by_kind(session)).values()) == {0}


async def test_any_number_of_stuck_files_keeps_no_other(database: Database, tmp_path: Path) -> None:
    store = LocalFileStore(tmp_path)
    stuck = await add_gone(database, 2 * COLLECT_AT_ONCE)
    for file_id in stuck:  # a folder in place of a file: nobody can unlink it
        (tmp_path / "objects" / file_id[-2:] / file_id).mkdir(parents=True)
    assert await collect_files(database, store) == 0
    await add_gone(database, 1)
    # A budget of one step: who has failed before is not in the way of who has not.
    assert await collect_files(database, store, OneStep.of()) == 1
    for file_id in stuck:
        (tmp_path / "objects" / file_id[-2:] / file_id).rmdir()
    assert await collect_files(database, store) == len(stuck)


class OneStep(Budget):
    """Left once."""

    asked: list[bool] = []

    @property
    def left(self) -> bool:
        self.asked.append(True)
        return len(self.asked) == 1


async def test_a_removal_that_hangs_holds_up_no_other() -> None:
    gone: list[str] = []

    async def remove(key: str) -> None:
        if key == "hangs":
            await asyncio.Event().wait()
        gone.append(key)

    assert await removed(["hangs", "goes"], remove, limit_s=0.05) == {"goes"}
    assert gone == ["goes"]


async def test_a_duty_that_hangs_ends_alone() -> None:
    ran: list[str] = []

    async def good() -> None:
        ran.append("good")

    with pytest.raises(TimeoutError):
        await fulfil({"hangs": asyncio.Event().wait, "good": good}, limit_s=0.05)
    assert ran == ["good"]
