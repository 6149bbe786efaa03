"""`Idempotency-Key` on creations (row T-30), through the official client."""

from __future__ import annotations

import asyncio
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI
from openai.types import Batch, FileObject
from sqlalchemy import text

from batch.intake.idempotency import MAX_KEY_CHARS, collect_keys
from store.session import Database
from tests.fixtures.live_gateway import Api
from tests.integration.gateway.test_batches import CHAT, line, upload


async def create(client: AsyncOpenAI, file_id: str, key: str, **changes: Any) -> Batch:
    fields: dict[str, Any] = {
        "input_file_id": file_id,
        "endpoint": CHAT,
        "completion_window": "24h",
    }
    return await client.batches.create(**fields | changes, extra_headers={"Idempotency-Key": key})


async def send(client: AsyncOpenAI, data: bytes, key: str, name: str = "in.jsonl") -> FileObject:
    return await client.files.create(
        file=(name, data), purpose="batch", extra_headers={"Idempotency-Key": key}
    )


@pytest.mark.contract("T-30")
async def test_batches_created_at_once_under_one_key_are_one(api: Api) -> None:
    async with api.client() as client, api.client(api.other_key) as other:
        file_id = await upload(client, line("a"))
        found = await asyncio.gather(*(create(client, file_id, "k") for _ in range(8)))
        assert len({batch.id for batch in found}) == 1
        assert len((await client.batches.list()).data) == 1
        assert (await create(client, file_id, "k2")).id != found[0].id
        with pytest.raises(openai.ConflictError) as refused:
            await create(client, file_id, "k", metadata={"a": "b"})
        assert refused.value.code == "idempotency_key_reused"
        assert refused.value.response.headers["x-should-retry"] == "false"
        # Another project's keys are its own.
        theirs = await create(other, await upload(other, line("a")), "k")
        assert theirs.id != found[0].id


async def test_a_refused_creation_leaves_the_key_unused(api: Api) -> None:
    async with api.client() as client:
        file_id = await upload(client, line("a"))
        with pytest.raises(openai.BadRequestError):
            await create(client, "file-unknown", "k")
        assert (await create(client, file_id, "k")).status == "validating"


@pytest.mark.contract("T-30")
async def test_files_uploaded_under_one_key_are_one(api: Api) -> None:
    async with api.client() as client:
        found = await asyncio.gather(*(send(client, line("a"), "k") for _ in range(5)))
        assert len({file.id for file in found}) == 1
        assert [file.id for file in (await client.files.list()).data] == [found[0].id]
        # The repeated uploads left no bytes behind.
        assert [path.name for path in api.files_folder.rglob("file-*")] == [found[0].id]
        for data, name in ((line("b"), "in.jsonl"), (line("a"), "other.jsonl")):
            with pytest.raises(openai.ConflictError):
                await send(client, data, "k", name)
        assert len([*api.files_folder.rglob("file-*")]) == 1
        assert (await client.files.content(found[0].id)).content == line("a")
        # A file deleted since is made anew; the same key may also name a batch.
        await client.files.delete(found[0].id)
        again = await send(client, line("a"), "k")
        assert again.id != found[0].id
        assert (await send(client, line("a"), "k")).id == again.id
        assert (await create(client, again.id, "k")).input_file_id == again.id


async def test_a_key_lives_for_a_day(api: Api, database: Database) -> None:
    async with api.client() as client:
        file_id = await upload(client, line("a"))
        first = await create(client, file_id, "k")
        await create(client, file_id, "young")
        old = text(
            "UPDATE idempotency_keys SET created_at = created_at - interval '25 hours'"
            " WHERE key = 'k'"
        )
        async with database.unit_of_work() as session:
            await session.execute(old)
        second = await create(client, file_id, "k", metadata={"now": "another"})
        assert second.id != first.id
        assert await collect_keys(database) == 0
        async with database.unit_of_work() as session:
            await session.execute(old)
        assert await collect_keys(database) == 1
        third = await create(client, file_id, "k")
        assert third.id not in (first.id, second.id)


@pytest.mark.parametrize("key", ["", "k" * (MAX_KEY_CHARS + 1), "a\tb"])
async def test_keys_that_are_none(api: Api, key: str) -> None:
    async with api.client() as client:
        file_id = await upload(client, line("a"))
        with pytest.raises(openai.BadRequestError):
            await create(client, file_id, key)
        with pytest.raises(openai.BadRequestError):
            await send(client, line("a"), key)
