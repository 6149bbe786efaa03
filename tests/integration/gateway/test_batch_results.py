"""Results while the batch runs, over HTTP, beside a dispatcher before a fake engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx
import openai
import orjson
import pytest

from batch.files import FileStore
from batch.finish.finalize import finalize
from batch.run.dispatch import DispatchLimits
from batch.states import BatchStatus
from engine_adapter.client.http import HttpEngineClient
from store.models import DEFAULT_PROJECT_ID
from store.repositories import file as files
from store.repositories import result as results
from store.repositories import row as rows
from store.repositories.result import NewResult
from store.session import Database
from tests.fakes.engine import FakeEngine, FakeSettings
from tests.fakes.server import serving
from tests.fixtures.batches import Bench, add_batch, line, read_batch, running
from tests.fixtures.live_gateway import Api

NUM_LINES = 120


@pytest.fixture
async def engine() -> AsyncIterator[HttpEngineClient]:
    async with serving(FakeEngine(FakeSettings(max_running=64))) as url:
        client = HttpEngineClient(url)
        yield client
        await client.close()


def bare(api: Api, key: str | None = None) -> httpx.AsyncClient:
    headers = {"authorization": f"Bearer {key or api.key}"}
    return httpx.AsyncClient(base_url=api.base_url, headers=headers, timeout=30)


async def add_mixed_batch(api: Api, database: Database) -> str:
    orders = ["fake:tokens=3 fake:token_ms=20", "fake:status=400"]
    lines = [line(f"r{n}", orders[n % 3 == 0]) for n in range(NUM_LINES)]
    return await add_batch(database, api.app.state.file_store, lines)


def service(api: Api, database: Database) -> Bench:
    file_store: FileStore = api.app.state.file_store
    return Bench(database, file_store=file_store)  # type: ignore[arg-type]


async def read_all(http: httpx.AsyncClient, batch_id: str, **query: str) -> tuple[bytes, int]:
    """Pages from offset 0 until complete: their bytes, and how many times nothing had come yet."""
    offset, data, num_early = 0, b"", 0
    while True:
        reply = await http.get(
            f"/batches/{batch_id}/results", params={"offset": offset, "limit": 7, **query}
        )
        assert reply.status_code == 200, reply.text
        data += reply.content
        num_early += reply.headers["x-batch-status"] == "in_progress" and bool(reply.content)
        assert int(reply.headers["x-next-offset"]) >= offset
        offset = int(reply.headers["x-next-offset"])
        if reply.headers["x-complete"] == "true":
            return data, num_early
        if not reply.content:
            await asyncio.sleep(0.02)


async def read_stream(http: httpx.AsyncClient, batch_id: str) -> list[tuple[int, str, bytes]]:
    """Every event of the feed to its end."""
    events = []
    async with http.stream("GET", f"/batches/{batch_id}/results/stream") as reply:
        assert reply.headers["content-type"].startswith("text/event-stream")
        text = b"".join([chunk async for chunk in reply.aiter_bytes()])
    for block in text.split(b"\n\n"):
        if block and not block.startswith(b":"):
            fields = dict(part.split(b": ", 1) for part in block.split(b"\n"))
            events.append((int(fields[b"id"]), fields[b"event"].decode(), fields[b"data"]))
    return events


async def test_what_is_read_while_it_runs_is_the_final_file(
    api: Api, database: Database, engine: HttpEngineClient
) -> None:
    bench = service(api, database)
    batch_id = await add_mixed_batch(api, database)
    held = await bench.lease(engine.url)
    dispatcher = bench.dispatcher(held, engine, limits=DispatchLimits(max_in_flight=8))
    async with bare(api) as http, asyncio.TaskGroup() as readers:
        output = readers.create_task(read_all(http, batch_id, kind="output"))
        errors = readers.create_task(read_all(http, batch_id, kind="error"))
        both = readers.create_task(read_all(http, batch_id))
        feed = readers.create_task(read_stream(http, batch_id))
        async with running(dispatcher):
            pass
        assert await finalize(database, bench.file_store, batch_id) is BatchStatus.COMPLETED
    async with api.client() as client:
        batch = await client.batches.retrieve(batch_id)
        assert batch.output_file_id is not None
        assert batch.error_file_id is not None
        final_output = (await client.files.content(batch.output_file_id)).content
        final_errors = (await client.files.content(batch.error_file_id)).content
    assert output.result()[0] == final_output
    assert errors.result()[0] == final_errors
    everything, num_early = both.result()
    assert sorted(everything.splitlines()) == sorted((final_output + final_errors).splitlines())
    assert num_early > 3, "read while it ran"

    events = feed.result()
    *lines, done = events
    assert [number for number, _, _ in lines] == list(range(1, NUM_LINES + 1))
    for kind, final in (("output", final_output), ("error", final_errors)):
        assert [data for _, name, data in lines if name == kind] == final.splitlines()
    end = {"status": "completed", "next_offset": NUM_LINES}
    assert (done[0], done[1], orjson.loads(done[2])) == (NUM_LINES, "done", end)


async def test_a_feed_is_taken_up_where_it_was_left(
    api: Api, database: Database, engine: HttpEngineClient
) -> None:
    bench = service(api, database)
    batch_id = await add_mixed_batch(api, database)
    await bench.dispatch(engine)
    await finalize(database, bench.file_store, batch_id)
    async with bare(api) as http:
        http.headers["last-event-id"] = str(NUM_LINES - 5)
        events = await read_stream(http, batch_id)
        assert [number for number, _, _ in events] == [*range(116, 121), 120]
        http.headers["last-event-id"] = "x"
        reply = await http.get(f"/batches/{batch_id}/results/stream")
        assert reply.status_code == 400


async def test_large_lines_make_small_pages(database: Database) -> None:
    bench = Bench(database)
    batch_id = await add_batch(database, bench.file_store, [line(f"r{n}") for n in range(5)])
    token = (await bench.lease("http://e")).id
    async with database.unit_of_work() as session:
        claimed = await rows.claim(session, token, {batch_id: 5})
        new = [NewResult(row.id, batch_id, "succeeded", b"x" * 1000) for row in claimed]
        await results.write(session, new, dispatcher_id=token)
        for max_bytes, num_lines in ((1, 1), (1000, 1), (1001, 2), (10_000, 5)):
            found = await results.after(
                session, batch_id, seq=0, succeeded=None, max_lines=9, max_bytes=max_bytes
            )
            assert [one.seq for one in found] == list(range(1, num_lines + 1))


async def test_what_is_refused(api: Api, database: Database) -> None:
    batch_id = await add_mixed_batch(api, database)
    for query in ("offset=-1", "offset=x", "limit=0", "limit=1001", "kind=all", f"offset={2**40}"):
        async with bare(api) as http:
            reply = await http.get(f"/batches/{batch_id}/results?{query}")
            assert reply.status_code == 400, query
            assert reply.json()["error"]["param"] == query.split("=")[0]
    async with bare(api, api.other_key) as http:
        for path in ("results", "results/stream"):
            for name in (batch_id, "batch_unknown", "no%20id"):
                assert (await http.get(f"/batches/{name}/{path}")).status_code == 404


async def test_lines_go_with_their_file(
    api: Api, database: Database, engine: HttpEngineClient
) -> None:
    bench = service(api, database)
    batch_id = await add_mixed_batch(api, database)
    await bench.dispatch(engine)
    await finalize(database, bench.file_store, batch_id)
    batch = await read_batch(database, batch_id)
    assert batch.output_file_id is not None
    async with api.client() as client:
        await client.files.delete(batch.output_file_id)
        with pytest.raises(openai.NotFoundError):
            await client.files.content(batch.output_file_id)
    async with bare(api) as http:
        for query, status in (("", 404), ("?kind=output", 404), ("?kind=error", 200)):
            reply = await http.get(f"/batches/{batch_id}/results{query}")
            assert reply.status_code == status
    async with database.unit_of_work() as session:
        assert batch.error_file_id is not None
        assert await files.get(session, DEFAULT_PROJECT_ID, batch.error_file_id) is not None
