"""Tokens of rows are in the usage table to the token: answered, cancelled, and called home."""

from __future__ import annotations

import asyncio

from batch.finish.cancel import cancel
from engine_adapter.client.base import TokenUsage
from engine_adapter.client.http import HttpEngineClient
from store.models import Usage
from store.repositories import key as keys
from store.repositories import usage as usages
from store.session import Database
from tests.fakes.engine import FakeEngine
from tests.fixtures.batches import (
    MODEL,
    Bench,
    add_batch,
    line,
    read_batch,
    row_statuses,
    running,
    until,
)

PROJECT = "proj_default"
SLOW = "one two fake:tokens=200 fake:token_ms=10"


async def accounted(database: Database) -> list[Usage]:
    async with database.unit_of_work() as session:
        return list(await usages.list_for(session, PROJECT))


def tokens_of(rows: list[Usage]) -> TokenUsage:
    return TokenUsage(
        sum(row.prompt_tokens for row in rows), sum(row.completion_tokens for row in rows)
    )


async def test_answers_count_for_the_key_that_sent_the_batch(
    bench: Bench, engine: HttpEngineClient, fake_engine: FakeEngine, database: Database
) -> None:
    async with database.unit_of_work() as session:
        key, _ = await keys.create(session, PROJECT, "mine")
    lines = [line(str(i), f"{'word ' * i} fake:tokens={i + 1}") for i in range(20)]
    batch_id = await add_batch(database, bench.file_store, lines)
    async with database.unit_of_work() as session:
        batch = await session.merge(await read_batch(database, batch_id))
        batch.key_id = key.id
    await bench.dispatch(engine)
    (row,) = await accounted(database)
    assert (row.key_id, row.model, row.request_class) == (key.id, MODEL, "offline")
    assert row.num_requests == 20
    assert tokens_of([row]) == fake_engine.served["offline"]
    batch = await read_batch(database, batch_id)
    assert (batch.prompt_tokens, batch.completion_tokens) == (
        row.prompt_tokens, row.completion_tokens,
    )  # fmt: skip


async def test_what_was_served_before_a_cancel_counts(
    bench: Bench, engine: HttpEngineClient, fake_engine: FakeEngine, database: Database
) -> None:
    batch_id = await add_batch(database, bench.file_store, [line(str(i), SLOW) for i in range(5)])
    held = await bench.lease(engine.url)
    async with running(bench.dispatcher(held, engine)):
        await until(
            lambda: fake_engine.served and fake_engine.served["offline"].completion_tokens > 50
        )
        async with database.unit_of_work() as session:
            await cancel(session, PROJECT, batch_id)
    assert set((await row_statuses(database, batch_id)).values()) == {"cancelled"}
    rows = await accounted(database)
    assert tokens_of(rows) == fake_engine.served["offline"]
    assert tokens_of(rows).prompt_tokens == 5 * 4
    assert 50 < tokens_of(rows).completion_tokens < 5 * 200
    assert sum(row.num_requests for row in rows) == 5
    # The batch's own usage is that of its lines, and none of them has an answer.
    assert (await read_batch(database, batch_id)).completion_tokens == 0


async def test_both_attempts_of_a_row_count_and_the_row_once(
    bench: Bench, engine: HttpEngineClient, fake_engine: FakeEngine, database: Database
) -> None:
    lines = [line(str(i), "one fake:tokens=100 fake:token_ms=20") for i in range(3)]
    batch_id = await add_batch(database, bench.file_store, lines)
    drain = asyncio.Event()
    held = await bench.lease(engine.url)
    async with running(bench.dispatcher(held, engine, drain=drain)):
        await until(
            lambda: fake_engine.served and fake_engine.served["offline"].completion_tokens > 6
        )
        drain.set()
    cut = fake_engine.served["offline"].completion_tokens
    assert 6 < cut < 300
    assert set((await row_statuses(database, batch_id)).values()) == {"pending"}
    await bench.dispatch(engine)
    rows = await accounted(database)
    assert tokens_of(rows) == fake_engine.served["offline"] == TokenUsage(2 * 3 * 3, cut + 300)
    assert sum(row.num_requests for row in rows) == 3
