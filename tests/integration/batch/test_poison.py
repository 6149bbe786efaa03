"""Lines that end their engine each time they run: they alone fail, after few deaths."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from batch.finish.finalize import finalize
from batch.run.quarantine import FAILURE_CODE, MAX_LOSSES, digests_of
from batch.states import BatchStatus
from engine_adapter.client.base import CHAT_PATH, COMPLETIONS_PATH, RESPONSES_PATH
from engine_adapter.client.http import HttpEngineClient
from store.repositories import suspect as suspects
from store.repositories.suspect import Loss
from store.session import Database
from tests.fakes.client import FakeEngineClient
from tests.fixtures.batches import MODEL, Bench, add_batch, file_lines, line, read_batch
from tests.fixtures.engine_process import POISON, engine_process

NUM_INNOCENT = 60


@pytest.mark.parametrize("num_poisoned", [1, pytest.param(2, marks=pytest.mark.thorough)])
async def test_a_line_that_ends_the_engine_fails_alone(
    bench: Bench, database: Database, num_poisoned: int
) -> None:
    lines = [line(f"good{n}", "fake:tokens=2 fake:token_ms=500") for n in range(NUM_INNOCENT)]
    for number in range(num_poisoned):
        lines.insert(10 + 20 * number, line(f"bad{number}", POISON))
    batch_id = await add_batch(database, bench.file_store, lines)
    async with engine_process(MODEL) as engine:
        supervisor = asyncio.ensure_future(engine.keep_alive())
        client = HttpEngineClient(engine.url)
        async with asyncio.timeout(120):
            ending = await bench.dispatch(client)
        await client.close()
        supervisor.cancel()
        # Each death is charged to at least one of them; to several where they were there together.
        assert engine.num_deaths <= MAX_LOSSES * num_poisoned
    assert ending.num_written == NUM_INNOCENT + num_poisoned
    assert await finalize(database, bench.file_store, batch_id) is BatchStatus.COMPLETED
    batch = await read_batch(database, batch_id)
    assert (batch.num_completed, batch.num_failed) == (NUM_INNOCENT, num_poisoned)
    errors: list[Any] = await file_lines(bench.file_store, batch.error_file_id)
    assert {one["custom_id"] for one in errors} == {f"bad{n}" for n in range(num_poisoned)}
    for one in errors:
        assert one["response"] is None
        assert one["error"]["code"] == FAILURE_CODE
        assert set(one["error"]) == {"code", "message"}
    seen = digests_of(CHAT_PATH, json.loads(lines[10])["body"])
    async with database.unit_of_work() as session:
        assert await suspects.lost_often(session, num_losses=MAX_LOSSES) == set(seen)


CHAT_BODY: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}]}
SUSPECTED: list[tuple[str, dict[str, Any]]] = [
    (CHAT_PATH, {**CHAT_BODY, "user": "another"}),
    (CHAT_PATH, {**CHAT_BODY, "n": 2, "seed": 4}),
    (COMPLETIONS_PATH, {"model": MODEL, "prompt": ["one", "two"]}),
    (RESPONSES_PATH, {"model": MODEL, "input": "hi", "store": False}),
]


@pytest.mark.parametrize(("endpoint", "body"), SUSPECTED)
async def test_what_two_engines_were_lost_with_online_is_not_tried_as_a_row(
    bench: Bench, database: Database, endpoint: str, body: dict[str, Any]
) -> None:
    async with database.unit_of_work() as session:
        for url in ("http://one", "http://two"):
            await suspects.note(session, [Loss(digests_of(endpoint, body)[0], url, 1.0, 1.0)])
    other = {**body, "temperature": 0.25}
    lines = [
        json.dumps({"custom_id": name, "method": "POST", "url": endpoint, "body": one}).encode()
        for name, one in (("bad", body), ("good", other))
    ]
    batch_id = await add_batch(database, bench.file_store, lines, endpoint=endpoint)
    client = FakeEngineClient()
    await bench.dispatch(client)
    assert all(one.get("temperature") == 0.25 for one in client.engine.received)
    await finalize(database, bench.file_store, batch_id)
    batch = await read_batch(database, batch_id)
    assert (batch.num_completed, batch.num_failed) == (1, 1)
    errors: list[Any] = await file_lines(bench.file_store, batch.error_file_id)
    (error,) = errors
    assert (error["custom_id"], error["error"]["code"]) == ("bad", FAILURE_CODE)
