"""What a batch says beyond the official fields, through the official client."""

from __future__ import annotations

from datetime import timedelta

import openai
import pytest
from openai import AsyncOpenAI

from batch.intake.validate import validate
from batch.states import BatchStatus
from batch.transition import move
from gateway.batch_shapes import shape
from store.repositories import batch as batches
from store.repositories import progress
from store.session import Database
from tests.fixtures.live_gateway import Api
from tests.integration.gateway.test_batches import CHAT, line, upload


async def test_a_strict_client_parses_what_is_ours(api: Api) -> None:
    async with api.client() as client:
        strict = AsyncOpenAI(
            base_url=api.base_url, api_key=api.key, _strict_response_validation=True
        )
        async with strict:
            file_id = await upload(client, line("a"))
            batch = await strict.batches.create(
                input_file_id=file_id,
                endpoint=CHAT,
                completion_window="24h",
                extra_body={"coserve": {"priority": 3, "paused": True}},
            )
            extra = batch.model_extra or {}
            assert set(extra) == {"coserve"}
            assert (extra["coserve"]["priority"], extra["coserve"]["paused"]) == (3, True)
            assert await strict.batches.retrieve(batch.id) == batch
            assert [one.id async for one in strict.batches.list()] == [batch.id]
        for wrong in ({"priority": 101}, {"priority": "1"}, {"paused": 1}, 5):
            with pytest.raises(openai.BadRequestError):
                await client.batches.create(
                    input_file_id=file_id,
                    endpoint=CHAT,
                    completion_window="24h",
                    extra_body={"coserve": wrong},
                )


async def test_an_infeasible_window_is_said_at_creation(
    api: Api, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "AGE", -1.0)  # each answer reads the service's speed itself
    async with api.client() as client:
        lines = b"\n".join(line(f"r{n}") for n in range(40))
        file_id = await upload(client, lines)
        for taken_s, feasible in ((60, True), (86400, False)):
            done = await client.batches.create(
                input_file_id=file_id, endpoint=CHAT, completion_window="24h"
            )
            await validate(database, api.app.state.file_store, done.id)
            async with database.unit_of_work() as session:
                batch = await move(session, done.id, BatchStatus.FINALIZING)
                assert batch is not None
                assert batch.in_progress_at is not None
                batch.finalizing_at = batch.in_progress_at + timedelta(seconds=taken_s)
                values = {"num_completed": 40}
                await move(session, done.id, BatchStatus.COMPLETED, values=values)
            large = await upload(client, b"\n".join([lines] * 3))
            new = await client.batches.create(
                input_file_id=large, endpoint=CHAT, completion_window="24h"
            )
            ours = (new.model_extra or {})["coserve"]
            assert ours["feasible"] is feasible
            assert (ours["warning"] is None) is feasible
            assert ours["predicted_finish_at"] >= new.created_at + taken_s
            await client.batches.cancel(new.id)


async def test_a_batch_that_moves_while_it_is_read_is_said_as_it_was(
    api: Api, database: Database
) -> None:
    engines = api.app.state.engines
    async with api.client() as client:
        file_id = await upload(client, line("a"))
        made = await client.batches.create(
            input_file_id=file_id, endpoint=CHAT, completion_window="24h"
        )
    async with database.unit_of_work() as session:
        batch = await batches.get(session, "proj_default", made.id)
        assert batch is not None
        await validate(database, api.app.state.file_store, made.id)
        said = await shape(session, engines, batch)
        assert said.coserve is not None
        assert (said.status, said.coserve.waiting_reason) == ("validating", "validating")
    async with database.unit_of_work() as session:
        batch = await batches.get(session, "proj_default", made.id)
        assert batch is not None
        async with database.unit_of_work() as other:
            await move(other, made.id, BatchStatus.CANCELLING)
        said = await shape(session, engines, batch)
        assert said.coserve is not None
        assert (said.status, said.coserve.waiting_reason) == ("in_progress", None)
