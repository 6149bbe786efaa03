"""Dispatch against a fake engine over HTTP, with real Postgres."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import orjson
import pytest

from batch.finish.cancel import cancel
from batch.finish.finalize import finalize
from batch.finish.output import EXPIRED_CODE
from batch.run.dispatch import DispatchLimits
from batch.states import BatchStatus
from engine_adapter.client.http import HttpEngineClient
from store.session import Database
from tests.fakes.dialect import Script  # type: ignore[attr-defined]
from tests.fakes.engine import FakeEngine, FakeSettings, Refused, flat_error
from tests.fakes.server import serving
from tests.fixtures.batches import (
    Bench,
    add_batch,
    end_window,
    events_of,
    file_lines,
    line,
    output_lines,
    read_batch,
    row_statuses,
    running,
    until,
    until_rows,
)


async def test_twenty_rows_complete(
    bench: Bench, engine: HttpEngineClient, database: Database
) -> None:
    batch_id = await add_batch(database, bench.file_store, [line(f"r{n}") for n in range(20)])
    ending = await bench.dispatch(engine)
    assert (ending.num_written, ending.num_fenced, ending.more_work) == (20, 0, False)
    assert await bench.due() == [batch_id]
    assert await finalize(database, bench.file_store, batch_id) is BatchStatus.COMPLETED
    batch = await read_batch(database, batch_id)
    assert (batch.status, batch.num_total, batch.num_completed, batch.num_failed) == (
        "completed", 20, 20, 0,
    )  # fmt: skip
    assert batch.error_file_id is None
    lines = await file_lines(bench.file_store, batch.output_file_id)
    assert {one["custom_id"] for one in lines} == {f"r{n}" for n in range(20)}
    assert len({one["id"] for one in lines}) == 20
    assert all(one["error"] is None for one in lines)
    bodies: list[Any] = [one["response"] for one in lines]
    assert {body["status_code"] for body in bodies} == {200}
    assert bodies[0]["body"]["choices"][0]["message"]["content"] == "four"
    assert batch.completion_tokens == sum(
        body["body"]["usage"]["completion_tokens"] for body in bodies
    )
    assert await events_of(database, batch_id) == [
        "created", "in_progress", "finalizing", "completed",
    ]  # fmt: skip


@pytest.mark.contract("E-14")
async def test_one_line_may_have_several_choices(
    bench: Bench, engine: HttpEngineClient, fake_engine: FakeEngine, database: Database
) -> None:
    raw = orjson.loads(line("three", "fake:tokens=2 words"))
    raw["body"]["n"] = 3
    batch_id = await add_batch(database, bench.file_store, [orjson.dumps(raw), line("one")])
    await bench.dispatch(engine)
    answers = {
        one["custom_id"]: one["response"]
        for one in await output_lines(database, batch_id, succeeded=True)
    }
    three: Any = answers["three"]
    assert [one["index"] for one in three["body"]["choices"]] == [0, 1, 2]
    assert three["body"]["usage"]["completion_tokens"] == 6
    batch = await read_batch(database, batch_id)
    assert batch.prompt_tokens == 2 + 1
    assert len(fake_engine.received) == 4


class Moody(FakeEngine):
    """Refuses the first `num_bad` calls with one status."""

    def __init__(self, status: int, num_bad: int) -> None:
        super().__init__(FakeSettings())
        self.status = status
        self.num_bad = num_bad
        self.num_calls = 0

    def script(self, path: str, body: Mapping[str, Any]) -> Script:
        self.num_calls += 1
        if self.num_calls <= self.num_bad:
            raise Refused(self.status, flat_error(self.status, "not now"))
        return super().script(path, body)


@pytest.mark.parametrize("status", [500, 503, 429])
async def test_what_may_pass_is_repeated(bench: Bench, database: Database, status: int) -> None:
    batch_id = await add_batch(database, bench.file_store, [line(f"r{n}") for n in range(6)])
    moody = Moody(status, num_bad=4)
    async with serving(moody) as url:
        client = HttpEngineClient(url)
        await bench.dispatch(client)
        await client.close()
    assert moody.num_calls == 10
    assert set((await row_statuses(database, batch_id)).values()) == {"succeeded"}


async def test_attempts_are_bounded_and_the_last_error_is_delivered(
    bench: Bench, engine: HttpEngineClient, fake_engine: FakeEngine, database: Database
) -> None:
    batch_id = await add_batch(
        database, bench.file_store, [line("bad", "fake:status=500"), line("good")]
    )
    await bench.dispatch(engine, limits=DispatchLimits(max_attempts=2))
    assert await row_statuses(database, batch_id) == {"bad": "errored", "good": "succeeded"}
    assert len(fake_engine.received) == 3
    (error,) = await output_lines(database, batch_id, succeeded=False)
    response: Any = error["response"]
    assert response["status_code"] == 500
    assert set(response["body"]["error"]) == {"message", "type", "param", "code"}
    assert error["error"] is None


async def test_a_bad_request_is_not_repeated(
    bench: Bench, engine: HttpEngineClient, fake_engine: FakeEngine, database: Database
) -> None:
    batch_id = await add_batch(database, bench.file_store, [line("bad", "fake:status=400")])
    await bench.dispatch(engine)
    assert len(fake_engine.received) == 1
    assert await finalize(database, bench.file_store, batch_id) is BatchStatus.COMPLETED
    batch = await read_batch(database, batch_id)
    assert (batch.num_completed, batch.num_failed, batch.output_file_id) == (0, 1, None)
    assert batch.error_file_id is not None


async def test_a_broken_connection_is_repeated(
    bench: Bench, engine: HttpEngineClient, database: Database
) -> None:
    batch_id = await add_batch(
        database, bench.file_store, [line("breaks", "fake:die_after=1"), line("good")]
    )
    await bench.dispatch(engine, limits=DispatchLimits(max_attempts=2))
    assert await row_statuses(database, batch_id) == {"breaks": "errored", "good": "succeeded"}
    (error,) = await output_lines(database, batch_id, succeeded=False)
    response: Any = error["response"]
    assert response["status_code"] == 503


async def test_rows_wait_for_an_engine_that_is_down(
    bench: Bench, engine: HttpEngineClient, fake_engine: FakeEngine, database: Database
) -> None:
    fake_engine.down = True
    batch_id = await add_batch(database, bench.file_store, [line(f"r{n}") for n in range(5)])
    dispatcher = bench.dispatcher(await bench.lease(engine.url), engine)
    async with running(dispatcher) as task:
        await asyncio.sleep(1.5)
        assert set((await row_statuses(database, batch_id)).values()) == {"pending"}
        assert not task.done()
        fake_engine.down = False
    assert set((await row_statuses(database, batch_id)).values()) == {"succeeded"}


async def test_rows_go_on_when_the_engine_comes_back(bench: Bench, database: Database) -> None:
    lines = [line(f"r{n}", "fake:tokens=2 fake:token_ms=1500") for n in range(8)]
    batch_id = await add_batch(database, bench.file_store, lines)
    first, second = FakeEngine(), FakeEngine()
    async with serving(first) as url:
        client = HttpEngineClient(url)
        dispatcher = bench.dispatcher(await bench.lease(url), client)
        task = asyncio.ensure_future(dispatcher.run())
        await until(lambda: len(first.running) == 8)
    # The engine is gone with everything it was doing; another one comes up at its address.
    await until_rows(database, batch_id, {"pending"})
    async with serving(second, port=int(url.rsplit(":", 1)[1])):
        ending = await task
        await client.close()
    assert ending.num_written == 8
    assert len(second.received) == 8


@pytest.mark.contract("R-18", "R-21")
async def test_cancel_frees_the_engine_and_delivers_what_was_finished(
    bench: Bench, engine: HttpEngineClient, fake_engine: FakeEngine, database: Database
) -> None:
    slow = [line(f"slow{n}", "fake:tokens=1000 fake:token_ms=50") for n in range(100)]
    batch_id = await add_batch(database, bench.file_store, [line("quick"), *slow])
    limits = DispatchLimits(max_in_flight=32)
    dispatcher = bench.dispatcher(await bench.lease(engine.url), engine, limits=limits)
    async with running(dispatcher) as task:
        await until(lambda: len(fake_engine.running) == 32)
        async with database.unit_of_work() as session:
            assert (await cancel(session, "proj_default", batch_id)).status == "cancelling"
        await until(lambda: not fake_engine.running and not fake_engine.waiting)
        await finalize(database, bench.file_store, batch_id)
        ending = await task
    assert not ending.lease_lost
    assert await finalize(database, bench.file_store, batch_id) in (None, BatchStatus.CANCELLED)
    batch = await read_batch(database, batch_id)
    assert (batch.status, batch.num_completed, batch.num_failed) == ("cancelled", 1, 100)
    (done,) = await file_lines(bench.file_store, batch.output_file_id)
    assert done["custom_id"] == "quick"
    errors: list[Any] = await file_lines(bench.file_store, batch.error_file_id)
    assert {one["error"]["code"] for one in errors} == {"batch_cancelled"}
    assert len({one["custom_id"] for one in errors}) == 100


@pytest.mark.contract("R-22", "R-23")
async def test_the_window_ends_while_rows_run(
    bench: Bench, engine: HttpEngineClient, fake_engine: FakeEngine, database: Database
) -> None:
    slow = [line(f"slow{n}", "fake:tokens=1000 fake:token_ms=50") for n in range(20)]
    batch_id = await add_batch(database, bench.file_store, [line("quick"), *slow])
    limits = DispatchLimits(max_in_flight=8)
    dispatcher = bench.dispatcher(await bench.lease(engine.url), engine, limits=limits)
    async with running(dispatcher) as task:
        await until(lambda: len(fake_engine.running) == 8)
        await end_window(database, batch_id)
        await until(lambda: not fake_engine.running and not fake_engine.waiting)
        num_received = len(fake_engine.received)
        await task
    assert len(fake_engine.received) == num_received, "a row ran after the window had ended"
    assert await finalize(database, bench.file_store, batch_id) is BatchStatus.EXPIRED
    batch = await read_batch(database, batch_id)
    assert (batch.status, batch.num_completed, batch.num_failed) == ("expired", 1, 20)
    assert batch.finalizing_at is None
    assert batch.expired_at is not None
    errors: list[Any] = await file_lines(bench.file_store, batch.error_file_id)
    assert {one["error"]["code"] for one in errors} == {EXPIRED_CODE}
    assert {one["response"] for one in errors} == {None}


async def test_a_drain_puts_running_rows_back(
    bench: Bench, engine: HttpEngineClient, fake_engine: FakeEngine, database: Database
) -> None:
    slow = [line(f"slow{n}", "fake:tokens=1000 fake:token_ms=50") for n in range(200)]
    batch_id = await add_batch(database, bench.file_store, slow)
    drain = asyncio.Event()
    dispatcher = bench.dispatcher(await bench.lease(engine.url), engine, drain=drain)
    async with running(dispatcher) as task:
        await until(lambda: len(fake_engine.running) + len(fake_engine.waiting) > 80)
        drain.set()
        ending = await task  # of rows that would take 50 s
    assert not ending.more_work
    await until(lambda: not fake_engine.running and not fake_engine.waiting)
    assert set((await row_statuses(database, batch_id)).values()) == {"pending"}
    # The lease is free at once, not only when it is stale.
    assert await bench.lease(engine.url)


async def test_projects_share_the_engine(
    bench: Bench, engine: HttpEngineClient, fake_engine: FakeEngine, database: Database
) -> None:
    from tests.fixtures.batches import add_project

    await add_project(database, "proj_other")
    slow = "fake:tokens=200 fake:token_ms=50"
    await add_batch(database, bench.file_store, [line(f"big{n}", slow) for n in range(200)])
    await add_batch(
        database,
        bench.file_store,
        [line(f"small{n}", slow + " mine") for n in range(16)],
        project_id="proj_other",
    )
    drain = asyncio.Event()
    limits = DispatchLimits(max_in_flight=32)
    dispatcher = bench.dispatcher(await bench.lease(engine.url), engine, limits=limits, drain=drain)
    async with running(dispatcher):
        await until(lambda: len(fake_engine.running) == 32)
        prompts = [body["messages"][0]["content"] for body in fake_engine.received]
        assert sum(prompt.endswith("mine") for prompt in prompts) == 16
        drain.set()
