"""What a worker of the stages does with what it claims: in turn, once, and one by itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest
from sqlalchemy import text

from api.batch_errors import StorageFull
from batch.files.memory import MemoryFileStore
from batch.finish.cancel import cancel
from batch.queue import DELIVER, DISPATCH, STAGES
from batch.worker import stage_work
from engine_adapter.client.http import HttpEngineClient
from store.repositories import stage as stages
from store.session import Database
from tests.fixtures.batches import (
    PATIENCE_S,
    Bench,
    add_batch,
    add_project,
    add_validating,
    end_window,
    events_of,
    line,
    read_batch,
)

MINE, OTHERS = "proj_default", "proj_other"


class _Store(MemoryFileStore):
    """Cannot read some objects; what it was asked for is remembered in order."""

    def __init__(self) -> None:
        super().__init__()
        self.read: list[str] = []
        self.broken: set[str] = set()
        self.error: Exception = OSError("broken")

    async def stream(
        self, key: str, *, offset: int = 0, length: int | None = None
    ) -> AsyncGenerator[bytes, None]:
        self.read.append(key)
        if key in self.broken:
            raise self.error
        async for chunk in super().stream(key, offset=offset, length=length):
            yield chunk


@pytest.fixture
def store(bench: Bench) -> _Store:
    bench.file_store = _Store()
    return bench.file_store


async def _validating(bench: Bench, num: int = 1, project_id: str = MINE) -> list[str]:
    await add_project(bench.database, project_id)
    return [
        await add_validating(bench.database, bench.file_store, [line("a")], project_id=project_id)
        for _ in range(num)
    ]


async def _files(bench: Bench, batch_ids: list[str]) -> list[str]:
    return [(await read_batch(bench.database, one)).input_file_id for one in batch_ids]


async def test_a_lone_batch_is_served_in_its_turn_beside_hundreds(
    bench: Bench, store: _Store
) -> None:
    many = await _files(bench, await _validating(bench, 300))
    (other,) = await _files(bench, await _validating(bench, 1, OTHERS))
    assert await bench.work() == 301
    assert sorted(store.read) == sorted([*many, other])
    assert store.read.index(other) <= stage_work.NUM_TOGETHER


async def test_the_next_worker_goes_on_with_the_next_project(
    bench: Bench, store: _Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage_work, "NUM_TOGETHER", 1)
    many = await _files(bench, await _validating(bench, 3))
    others = await _files(bench, await _validating(bench, 3, OTHERS))
    worker = bench.stage_work()
    for _ in range(4):
        assert await worker.run(asyncio.Event(), slice_s=0.0) == 1
    assert store.read == [many[0], others[0], many[1], others[1]]


async def test_workers_at_once_run_each_stage_once(
    bench: Bench, store: _Store, database: Database
) -> None:
    waiting = await _validating(bench, 40)
    num_run = await asyncio.gather(*(bench.work() for _ in range(4)))
    assert sum(num_run) == 40
    assert sorted(store.read) == sorted(await _files(bench, waiting))
    for batch_id in waiting:
        assert (await events_of(database, batch_id)).count("in_progress") == 1


async def test_one_that_fails_holds_up_no_other_and_is_tried_again(
    bench: Bench, store: _Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage_work, "_FAILED", stage_work._Again(0.05))
    bad, good = await _validating(bench, 2)
    store.broken = set(await _files(bench, [bad]))
    await bench.work()
    assert (await read_batch(bench.database, good)).status == "in_progress"
    assert (await read_batch(bench.database, bad)).status == "validating"
    store.broken.clear()
    async with asyncio.timeout(PATIENCE_S):
        while (await read_batch(bench.database, bad)).status == "validating":
            await bench.work()


async def test_a_full_store_ends_the_work_until_there_is_room(bench: Bench, store: _Store) -> None:
    num = 2 * stage_work.NUM_TOGETHER
    bad, *_ = await _validating(bench, num)
    store.broken, store.error = set(await _files(bench, [bad])), StorageFull()
    with pytest.raises(StorageFull):
        await bench.work()
    assert len(store.read) <= stage_work.NUM_TOGETHER
    store.broken.clear()
    assert await bench.work() == num


async def test_a_worker_that_died_is_followed_when_its_lease_ends(
    bench: Bench, database: Database
) -> None:
    (batch_id,) = await _validating(bench)
    async with database.unit_of_work() as session:
        claimed = await stages.claim(session, after="", lease_s=60.0, sizes=stage_work.SIZES, num=1)
        assert [one.id for one in claimed] == [batch_id]
    assert await bench.work() == 0
    async with database.unit_of_work() as session:
        await session.execute(text("UPDATE batches SET stage_at = statement_timestamp()"))
    assert await bench.work() == 1
    assert (await read_batch(database, batch_id)).status == "in_progress"


async def test_a_long_stage_keeps_its_claim(
    bench: Bench, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage_work, "LEASE_S", 3.0)  # a busy machine may stop it for a second
    monkeypatch.setattr(stage_work, "RENEW_S", 0.05)
    (batch_id,) = await _validating(bench)
    reading, go_on = asyncio.Event(), asyncio.Event()

    class Slow(MemoryFileStore):
        async def stream(
            self, key: str, *, offset: int = 0, length: int | None = None
        ) -> AsyncGenerator[bytes, None]:
            reading.set()
            await go_on.wait()
            yield line("a")

    bench.file_store = Slow()
    working = asyncio.ensure_future(bench.work())
    await reading.wait()
    await asyncio.sleep(5.0)  # longer than its lease
    assert await bench.work() == 0
    go_on.set()
    assert await working == 1
    assert (await read_batch(database, batch_id)).status == "in_progress"


async def test_cancelled_and_expired_batches_move_beside_hundreds_of_others(
    bench: Bench, database: Database
) -> None:
    await _validating(bench, 100, OTHERS)
    cancelled, expired, never = (
        await add_batch(database, bench.file_store, [line("a")]),
        await add_batch(database, bench.file_store, [line("a")]),
        (await _validating(bench))[0],
    )
    async with database.unit_of_work() as session:
        await cancel(session, MINE, cancelled)
    await end_window(database, expired)
    await end_window(database, never)
    worker = bench.stage_work()
    for _ in range(6):  # they have every second turn
        await worker.run(asyncio.Event(), slice_s=0.0)
    found = [(await read_batch(database, one)).status for one in (cancelled, expired, never)]
    assert found == ["cancelled", "expired", "expired"]


async def test_a_cancelled_batch_waits_for_its_rows_in_flight(
    bench: Bench, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage_work, "_NOT_NOW", stage_work._Again(0.01))
    batch_id = await add_batch(database, bench.file_store, [line("a")])
    async with database.unit_of_work() as session:
        await session.execute(
            text("UPDATE batch_rows SET status = 'leased', dispatcher_id = 'disp_gone'")
        )
        await cancel(session, MINE, batch_id)
    assert await bench.work() > 0
    assert (await read_batch(database, batch_id)).status == "cancelling"
    async with database.unit_of_work() as session:
        await session.execute(
            text("UPDATE batch_rows SET status = 'pending', dispatcher_id = NULL")
        )
    async with asyncio.timeout(PATIENCE_S):
        while (await read_batch(database, batch_id)).status == "cancelling":
            await bench.work()


async def test_others_are_woken_once_for_many_stages(
    bench: Bench, engine: HttpEngineClient
) -> None:
    await _validating(bench, 30)
    await bench.work()
    woken = bench.queue.take()
    assert woken.count(STAGES) == 1, "another process looks for more"
    assert 1 <= woken.count(DISPATCH) < 30
    await bench.dispatch(engine)
    bench.queue.take()
    await bench.work()
    assert 1 <= bench.queue.take().count(DELIVER) < 30


async def test_a_worker_that_drains_begins_nothing_more(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage_work, "NUM_TOGETHER", 1)
    await _validating(bench, 5)
    drain = asyncio.Event()
    drain.set()
    assert await bench.stage_work().run(drain) == 1
    assert len(await bench.due()) == 4
