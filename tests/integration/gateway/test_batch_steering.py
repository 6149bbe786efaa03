"""Steering a batch over HTTP, through the official client's own door for further calls."""

from __future__ import annotations

from typing import Any

import openai
import pytest
from openai import AsyncOpenAI
from openai.types import Batch

from batch.intake.validate import validate
from batch.states import BatchStatus
from batch.transition import move
from store.session import Database
from tests.fixtures.live_gateway import Api
from tests.integration.gateway.test_batches import CHAT, line, upload


async def live_batch(api: Api, database: Database, client: AsyncOpenAI) -> str:
    file_id = await upload(client, line("a") + b"\n" + line("b"))
    batch = await client.batches.create(
        input_file_id=file_id, endpoint=CHAT, completion_window="24h"
    )
    await validate(database, api.app.state.file_store, batch.id)
    return batch.id


async def steer(client: AsyncOpenAI, batch_id: str, verb: str, **body: Any) -> Batch:
    return await client.post(f"/batches/{batch_id}/{verb}", cast_to=Batch, body=body or None)


async def test_steering(api: Api, database: Database) -> None:
    async with api.client() as client:
        batch_id = await live_batch(api, database, client)
        for verb in ("pause", "pause", "resume", "resume"):
            assert (await steer(client, batch_id, verb)).status == "in_progress"
        assert (await steer(client, batch_id, "priority", priority=7)).id == batch_id


async def test_what_is_refused(api: Api, database: Database) -> None:
    async with api.client() as client, api.client(api.other_key) as stranger:
        batch_id = await live_batch(api, database, client)
        for verb in ("pause", "resume", "retry"):
            for name in (batch_id, "batch_unknown", "no%20id"):
                with pytest.raises(openai.NotFoundError):
                    await steer(stranger, name, verb)
        for wrong in (101, "high", 1.5, True, None):
            with pytest.raises(openai.BadRequestError) as refused:
                await steer(client, batch_id, "priority", priority=wrong)
            assert refused.value.param == "priority"
        with pytest.raises(openai.ConflictError) as conflict:
            await steer(client, batch_id, "retry")
        assert conflict.value.response.headers["x-should-retry"] == "false"


async def test_a_retry_is_a_batch_of_its_own(api: Api, database: Database) -> None:
    async with api.client() as client:
        batch_id = await live_batch(api, database, client)
        async with database.unit_of_work() as session:
            await move(session, batch_id, BatchStatus.FINALIZING, values={"num_failed": 1})
            values = {"num_completed": 1}
            batch = await move(session, batch_id, BatchStatus.COMPLETED, values=values)
            assert batch is not None
            connection = await session.connection()
            await connection.exec_driver_sql(
                "UPDATE batch_rows SET status = CASE custom_id WHEN 'a' THEN 'errored'"
                " ELSE 'succeeded' END"
            )
        again = await steer(client, batch_id, "retry")
        assert (again.status, again.input_file_id) == ("in_progress", batch.input_file_id)
        assert again.id != batch_id
        assert again.request_counts is not None
        assert again.request_counts.total == 1
        assert (await steer(client, batch_id, "retry")).id == again.id
