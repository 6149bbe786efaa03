"""A dry run finds what the validation would, and leaves nothing behind."""

from __future__ import annotations

import asyncio
from typing import Any

import openai
import orjson
import pytest
from openai import AsyncOpenAI
from sqlalchemy import text

from batch.intake.dry_run import MAX_RUNNING, MAX_WAITING
from batch.intake.validate import validate
from store.session import Database
from tests.fixtures.live_gateway import Api
from tests.integration.gateway.test_batches import CHAT, line, upload


async def check(client: AsyncOpenAI, file_id: str, endpoint: str = CHAT) -> dict[str, Any]:
    body = {"input_file_id": file_id, "endpoint": endpoint}
    return await client.post("/batches/check", cast_to=dict[str, Any], body=body)


async def test_a_dry_run_says_what_the_validation_says(api: Api, database: Database) -> None:
    bad = [line("a"), b"{", line("a"), line("b", stream=True), b"", line("c", model="other")]
    async with api.client() as client:
        file_id = await upload(client, b"\n".join(bad))
        found = await check(client, file_id)
        assert (await client.batches.list()).data == []
        batch = await client.batches.create(
            input_file_id=file_id, endpoint=CHAT, completion_window="24h"
        )
        await validate(database, api.app.state.file_store, batch.id)
        batch = await client.batches.retrieve(batch.id)
    assert batch.errors is not None
    assert found["errors"] == batch.errors.model_dump()
    assert len(found["errors"]["data"]) == 4
    assert (found["valid"], found["num_lines"], found["model"]) == (False, 5, "m")
    assert (found["object"], found["input_file_id"], found["endpoint"]) == (
        *("batch.check", file_id),
        CHAT,
    )


async def test_a_good_file(api: Api) -> None:
    data = b"\n".join(line(f"r{n}") for n in range(500))
    async with api.client() as client:
        file_id = await upload(client, data)
        found = await check(client, file_id)
    assert (found["valid"], found["errors"], found["model"]) == (True, None, "m")
    assert (found["num_lines"], found["num_bytes"]) == (500, len(data))


async def test_a_quote(api: Api, database: Database) -> None:
    rows = [line(f"r{n}", max_tokens=30 + n % 2, temperature=0) for n in range(40)]
    async with api.client() as client:
        file_id = await upload(client, b"\n".join(rows))
        first = (await check(client, file_id))["quote"]
        assert (first["rows"], first["distinct_rows"]) == (40, 2)
        assert first["shared_prompt_tokens"] >= 38 * first["prompt_tokens"] // 40
        assert (first["answer_tokens"], first["finish_range"], first["price"]) == (None,) * 3
        batch = await client.batches.create(
            input_file_id=file_id, endpoint=CHAT, completion_window="24h"
        )
        await validate(database, api.app.state.file_store, batch.id)
        async with database.unit_of_work() as session:
            await session.execute(
                text(
                    "UPDATE batches SET status = 'completed', num_completed = 40,"
                    " completion_tokens = 800, finalizing_at = in_progress_at + interval '2 s',"
                    " completed_at = now()"
                )
            )
        later = (await check(client, file_id))["quote"]
        ended: Any = await client.batches.retrieve(batch.id)
        strange = (await check(client, await upload(client, b"{")))["quote"]
    assert later["answer_tokens"] == 40 * 20
    assert strange is None
    receipt = ended.coserve["receipt"]
    assert (receipt["rows"], receipt["distinct_rows"], receipt["answer_tokens"]) == (40, 2, 800)
    assert receipt["finished_at"] == ended.completed_at


async def test_a_thousand_faults_are_all_named(api: Api) -> None:
    lines = [line(f"r{n}", stream=True) for n in range(1000)]
    async with api.client() as client:
        found = await check(client, await upload(client, b"\n".join(lines)))
    assert [one["line"] for one in found["errors"]["data"]] == list(range(1, 1001))


async def test_what_cannot_be_checked(api: Api) -> None:
    async with api.client() as client, api.client(api.other_key) as stranger:
        file_id = await upload(client, line("a"))
        for who, name, endpoint, param in (
            (client, "file-unknown", CHAT, "input_file_id"),
            (stranger, file_id, CHAT, "input_file_id"),
            (client, file_id, "/v1/moderations", "endpoint"),
        ):
            with pytest.raises(openai.BadRequestError) as refused:
                await check(who, name, endpoint)
            assert refused.value.param == param
        await api.app.state.file_store.delete(file_id)
        with pytest.raises(openai.NotFoundError):
            await check(client, file_id)


async def test_checks_of_a_project_wait_for_each_other_and_too_many_are_refused(api: Api) -> None:
    num = MAX_RUNNING + MAX_WAITING + 3
    async with api.client() as client, api.client(api.other_key) as other:
        file_id, others = await upload(client, line("a")), await upload(other, line("a"))
        *found, beside = await asyncio.gather(
            *(check(client, file_id) for _ in range(num)),
            check(other, others),
            return_exceptions=True,
        )
    assert isinstance(beside, dict), "however many of one project wait, another's is let in"
    answered = [one for one in found if isinstance(one, dict)]
    refused = [one for one in found if isinstance(one, openai.RateLimitError)]
    assert len(answered) + len(refused) == num
    assert all(one["valid"] for one in answered)
    assert len(answered) >= MAX_WAITING
    for one in refused:
        error = orjson.loads(one.response.content)["error"]
        assert error["code"] == "rate_limit_exceeded"
        assert f"{MAX_WAITING} files" in error["message"]
