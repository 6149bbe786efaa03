"""The quota on enqueued tokens: let in while there is room, free again when rows end."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy import text

from api.errors import TokensRateLimited
from batch.finish.cancel import cancel
from batch.finish.finalize import finalize
from batch.intake.validate import validate
from batch.rerun import retry_failed
from engine_adapter.client.http import HttpEngineClient
from store.repositories import quota as quotas
from store.session import Database
from tests.fixtures.batches import (
    MODEL,
    Bench,
    add_project,
    add_validating,
    end_window,
    line,
    read_batch,
)

PROJECT = "proj_default"
ROW_TOKENS = 4 + 10
"""One message of forty characters."""

PROMPT = "fake:text=four ".ljust(40, "x")


async def limit(database: Database, tokens: int, project_id: str = PROJECT) -> None:
    async with database.unit_of_work() as session:
        await session.execute(
            text("UPDATE projects SET batch_enqueued_token_limit = :tokens WHERE id = :id"),
            {"tokens": tokens, "id": project_id},
        )


async def submit(
    bench: Bench, num_rows: int, *, project_id: str = PROJECT, prompt: str = PROMPT
) -> str:
    """A batch after its validation; its id."""
    lines = [line(str(i), prompt) for i in range(num_rows)]
    batch_id = await add_validating(bench.database, bench.file_store, lines, project_id=project_id)
    await validate(bench.database, bench.file_store, batch_id)
    return batch_id


async def status(bench: Bench, batch_id: str) -> str:
    return (await read_batch(bench.database, batch_id)).status


async def enqueued(database: Database) -> int:
    async with database.unit_of_work() as session:
        return await quotas.enqueued_tokens(session, PROJECT, MODEL)


@pytest.mark.contract("B-31")
async def test_a_batch_over_the_quota_fails_and_says_how_much_is_used(
    bench: Bench, database: Database
) -> None:
    await limit(database, 100)
    assert await status(bench, await submit(bench, 5)) == "in_progress"
    assert await enqueued(database) == 5 * ROW_TOKENS
    batch = await read_batch(database, await submit(bench, 3))
    assert batch.status == "failed"
    assert batch.failed_at is not None
    (error,) = batch.errors or []
    assert set(error) == {"code", "message", "param", "line"}
    assert (error["code"], error["param"], error["line"]) == ("token_limit_exceeded", None, None)
    assert "Limit: 100 enqueued tokens, used: 70, this batch: 42" in error["message"]
    assert MODEL in error["message"]
    assert await enqueued(database) == 5 * ROW_TOKENS
    assert await status(bench, await submit(bench, 2)) == "in_progress"


@pytest.mark.contract("B-31")
async def test_answered_rows_make_room(
    bench: Bench, engine: HttpEngineClient, database: Database
) -> None:
    await limit(database, 5 * ROW_TOKENS)
    first = await submit(bench, 5)
    assert await status(bench, await submit(bench, 1)) == "failed"
    await bench.dispatch(engine)
    assert await enqueued(database) == 0
    assert await status(bench, await submit(bench, 5)) == "in_progress"
    assert await status(bench, first) == "finalizing"


@pytest.mark.contract("B-31")
@pytest.mark.parametrize("end", ["cancel", "expire"])
async def test_the_end_of_a_batch_makes_room_at_once(
    bench: Bench, database: Database, end: str
) -> None:
    await limit(database, 5 * ROW_TOKENS)
    first = await submit(bench, 5)
    if end == "cancel":
        async with database.unit_of_work() as session:
            await cancel(session, PROJECT, first)
    else:
        await end_window(database, first)
    assert await enqueued(database) == 0
    assert await status(bench, await submit(bench, 5)) == "in_progress"


async def test_models_and_projects_have_quotas_of_their_own(
    bench: Bench, database: Database
) -> None:
    other = await add_project(database, "proj_other")
    await limit(database, 5 * ROW_TOKENS)
    assert await status(bench, await submit(bench, 5)) == "in_progress"
    assert await status(bench, await submit(bench, 50, project_id=other)) == "in_progress"
    async with database.unit_of_work() as session:
        await session.execute(text("UPDATE batches SET model = 'another-model'"))
    assert await status(bench, await submit(bench, 5)) == "in_progress"


async def test_the_setting_is_for_projects_without_a_quota(
    bench: Bench, database: Database
) -> None:
    lines = [line(str(i), PROMPT) for i in range(3)]
    for wanted, default in (("failed", 2 * ROW_TOKENS), ("in_progress", None)):
        batch_id = await add_validating(database, bench.file_store, lines)
        await validate(database, bench.file_store, batch_id, enqueued_token_limit=default)
        assert await status(bench, batch_id) == wanted
    await limit(database, 0)
    assert await status(bench, await submit(bench, 1)) == "failed"


async def test_two_at_once_cannot_both_take_the_last_room(bench: Bench, database: Database) -> None:
    await limit(database, 5 * ROW_TOKENS)
    made = await asyncio.gather(*(submit(bench, 4) for _ in range(6)))
    statuses = sorted([await status(bench, batch_id) for batch_id in made])
    assert statuses == ["failed"] * 5 + ["in_progress"]


async def test_a_retry_needs_room_too(
    bench: Bench, engine: HttpEngineClient, database: Database
) -> None:
    await limit(database, 5 * ROW_TOKENS)
    source = await submit(bench, 3, prompt="fake:status=400".ljust(40, "x").replace("x", " "))
    await bench.dispatch(engine)
    await finalize(database, bench.file_store, source)
    assert (await read_batch(database, source)).num_failed == 3
    await submit(bench, 4)
    with pytest.raises(TokensRateLimited) as refused:
        async with database.unit_of_work() as session:
            await retry_failed(session, PROJECT, source)
    assert refused.value.code == "token_limit_exceeded"
    await limit(database, 8 * ROW_TOKENS)
    async with database.unit_of_work() as session:
        await retry_failed(session, PROJECT, source)
    assert await enqueued(database) == 7 * ROW_TOKENS
