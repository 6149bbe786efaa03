"""Usage per key, model, class and day: whole, streamed and cut answers."""

from __future__ import annotations

import asyncio

import pytest

from api.usage import TokenUsage
from engine_adapter.scheduling.request import RequestClass
from gateway.auth.principal import Principal
from gateway.auth.usage import UsageRecorder
from gateway.observability.metrics import Metrics
from store.models import DEFAULT_PROJECT_ID, Usage
from store.repositories import usage as usages
from store.session import Database
from tests.integration.gateway.conftest import MODEL, Online


async def written(database: Database, num_requests: int) -> dict[str, Usage]:
    """Rows by class, once so many requests have been written."""
    async with asyncio.timeout(5):
        while True:
            async with database.unit_of_work() as session:
                rows = await usages.list_for(session, DEFAULT_PROJECT_ID)
            if sum(row.num_requests for row in rows) >= num_requests:
                return {row.request_class: row for row in rows}
            await asyncio.sleep(0.05)


async def test_whole_streamed_and_flex_answers(online: Online, database: Database) -> None:
    async with online.client() as client:
        create = client.chat.completions.create
        await create(**online.chat("a b c fake:tokens=5"))
        await create(**online.chat("a fake:tokens=2"), n=2)
        async for _ in await create(**online.chat("fake:tokens=7"), stream=True):
            pass
        await create(**online.chat("x fake:tokens=1"), service_tier="flex")
    rows = await written(database, 4)
    online_row = rows["online"]
    assert (online_row.key_id, online_row.model) == (online.key_id, MODEL)
    assert online_row.num_requests == 3
    assert online_row.prompt_tokens == 4 + 2 + 1
    assert online_row.completion_tokens == 5 + 4 + 7
    assert (rows["flex"].num_requests, rows["flex"].completion_tokens) == (1, 1)


@pytest.mark.contract("P-14")
async def test_responses_are_counted_as_chat(online: Online, database: Database) -> None:
    async with online.client() as client:
        create = client.responses.create
        await create(model=MODEL, input="a b c fake:tokens=5")
        async for _ in await create(model=MODEL, input="fake:tokens=7", stream=True):
            pass
        await create(model=MODEL, input="x fake:tokens=1", service_tier="flex")
    rows = await written(database, 3)
    assert (rows["online"].key_id, rows["online"].num_requests) == (online.key_id, 2)
    assert (rows["online"].prompt_tokens, rows["online"].completion_tokens) == (4 + 1, 5 + 7)
    assert (rows["flex"].num_requests, rows["flex"].completion_tokens) == (1, 1)


@pytest.mark.contract("S-19")
async def test_a_cut_stream_is_counted(online: Online, database: Database) -> None:
    async with online.client() as client:
        stream = await client.chat.completions.create(
            **online.chat("fake:tokens=100 fake:token_ms=10"), stream=True
        )
        num_seen = 0
        async for chunk in stream:
            num_seen += bool(chunk.choices[0].delta.content)
            if num_seen == 5:
                break
        await stream.close()
    row = (await written(database, 1))["online"]
    assert row.prompt_tokens == 2
    assert 5 <= row.completion_tokens < 100


async def test_what_could_not_be_written_is_written_later(database: Database) -> None:
    gone = Database("postgresql+psycopg://app@127.0.0.1:1/app?connect_timeout=2")
    metrics = Metrics()
    recorder = UsageRecorder(gone, metrics)
    principal = Principal(DEFAULT_PROJECT_ID, "key_1")
    recorder.add(principal, "m", RequestClass.ONLINE, TokenUsage(3, 4))
    assert not await recorder.flush()
    await gone.dispose()
    recorder._database = database
    recorder.add(principal, "m", RequestClass.ONLINE, TokenUsage(1, 1))
    assert await recorder.flush()
    assert await recorder.flush()
    row = (await written(database, 2))["online"]
    assert (row.prompt_tokens, row.completion_tokens) == (4, 5)
    assert b"coserve_usage_flush_failures_total 1.0" in metrics.exposition()
