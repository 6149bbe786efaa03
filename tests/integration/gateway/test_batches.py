"""`/batches` through the official client."""

from __future__ import annotations

import json
from typing import Any, Final

import httpx
import openai
import orjson
import pytest
from openai import AsyncOpenAI

from api.batch_shapes import BatchObject
from batch.finish.collect import collect_files
from batch.intake.validate import validate
from batch.states import BatchStatus
from batch.transition import move
from store.models import File
from store.session import Database
from tests.fixtures.live_gateway import Api

CHAT: Final = "/v1/chat/completions"


def line(custom_id: str, **body: Any) -> bytes:
    messages = [{"role": "user", "content": "hi"}]
    return orjson.dumps(
        {
            "custom_id": custom_id,
            "method": "POST",
            "url": CHAT,
            "body": {"model": "m", "messages": messages, **body},
        }
    )


async def upload(client: AsyncOpenAI, data: bytes) -> str:
    return (await client.files.create(file=("in.jsonl", data), purpose="batch")).id


def bare(api: Api) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=api.base_url, headers={"authorization": f"Bearer {api.key}"})


@pytest.mark.contract("B-02", "B-06", "B-07", "B-08", "B-09", "B-11")
async def test_a_new_batch(api: Api) -> None:
    async with api.client() as client:
        file_id = await upload(client, line("a"))
        batch = await client.batches.create(
            input_file_id=file_id,
            endpoint=CHAT,
            completion_window="24h",
            metadata={"who": "größe 🙂"},
            output_expires_after={"anchor": "created_at", "seconds": 3600},
        )
        assert batch.id.startswith("batch_")
        assert (batch.object, batch.status, batch.endpoint) == ("batch", "validating", CHAT)
        assert (batch.input_file_id, batch.completion_window) == (file_id, "24h")
        assert batch.metadata == {"who": "größe 🙂"}
        assert batch.expires_at == batch.created_at + 86400
        assert batch.request_counts is not None
        assert batch.request_counts.model_dump() == {"total": 0, "completed": 0, "failed": 0}
        assert await client.batches.retrieve(batch.id) == batch
    async with bare(api) as http:
        body = (await http.get(f"/batches/{batch.id}")).json()
    # Every key is there, null where nothing is known yet.
    assert set(body) == set(BatchObject.model_fields)
    assert {key for key, value in body.items() if value is not None} == {
        "id",
        "object",
        "endpoint",
        "input_file_id",
        "completion_window",
        "status",
        "created_at",
        "expires_at",
        "request_counts",
        "metadata",
        "coserve",
    }
    assert body["coserve"] == {
        "predicted_finish_at": None,
        "predicted_finish_range": None,
        "feasible": None,
        "warning": None,
        "tokens_per_s": None,
        "rows_per_s": None,
        "waiting_reason": "validating",
        "paused": False,
        "priority": 0,
        "retry_of": None,
        "receipt": None,
        "webhook_endpoints": None,
        "at_engine": None,
        "input_filename": "in.jsonl",
    }


@pytest.mark.contract("B-16", "B-17", "B-19", "B-24", "B-25", "B-26", "B-27")
async def test_a_bad_file_fails_with_every_error(api: Api, database: Database) -> None:
    lines = [line("a"), b"{", line("a"), line("b", stream=True), b"", line("c", model="other")]
    async with api.client() as client:
        file_id = await upload(client, b"\n".join(lines))
        batch = await client.batches.create(
            input_file_id=file_id, endpoint=CHAT, completion_window="24h"
        )
        await validate(database, api.app.state.file_store, batch.id)
        batch = await client.batches.retrieve(batch.id)
    assert batch.status == "failed"
    assert batch.failed_at is not None
    assert (batch.output_file_id, batch.error_file_id) == (None, None)
    assert batch.errors is not None
    assert batch.errors.data is not None
    assert batch.errors.object == "list"
    found = [(fault.line, fault.code, fault.param) for fault in batch.errors.data]
    assert found == [
        (2, "invalid_json_line", None),
        (3, "duplicate_custom_id", "custom_id"),
        (4, "streaming_unsupported", "body.stream"),
        (6, "mismatched_model", "body.model"),
    ]


async def test_a_good_file_is_in_progress(api: Api, database: Database) -> None:
    async with api.client() as client:
        file_id = await upload(client, line("a") + b"\n" + line("b"))
        for _ in range(2):  # one file may feed several batches
            batch = await client.batches.create(
                input_file_id=file_id, endpoint=CHAT, completion_window="24h"
            )
            await validate(database, api.app.state.file_store, batch.id)
            batch = await client.batches.retrieve(batch.id)
            assert (batch.status, batch.model) == ("in_progress", "m")
            assert batch.request_counts is not None
            assert batch.request_counts.total == 2
            assert batch.usage is not None
            assert batch.usage.total_tokens == 0


REFUSED: tuple[tuple[dict[str, Any], str | None], ...] = (
    ({"input_file_id": None}, "input_file_id"),
    ({"input_file_id": 3}, "input_file_id"),
    ({"input_file_id": "file-unknown"}, "input_file_id"),
    ({"input_file_id": "\0"}, "input_file_id"),
    ({"endpoint": None}, "endpoint"),
    ({"endpoint": "/v1/moderations"}, "endpoint"),
    ({"endpoint": ""}, "endpoint"),
    ({"completion_window": None}, "completion_window"),
    ({"completion_window": "30m"}, "completion_window"),
    ({"completion_window": "8d"}, "completion_window"),
    ({"metadata": {str(number): "" for number in range(17)}}, "metadata"),
    ({"metadata": {"k" * 65: ""}}, "metadata"),
    ({"metadata": {"k": "v" * 513}}, "metadata"),
    ({"metadata": {"k": "\0"}}, "metadata"),
    ({"metadata": {"k": "\ud800"}}, None),
    ({"metadata": {"k": 3}}, "metadata.k"),
    ({"metadata": []}, "metadata"),
    (
        {"output_expires_after": {"anchor": "x", "seconds": 3600}},
        "output_expires_after.anchor",
    ),
    (
        {"output_expires_after": {"anchor": "created_at", "seconds": 3599}},
        "output_expires_after.seconds",
    ),
    ({"output_expires_after": {"anchor": "created_at"}}, "output_expires_after.seconds"),
)


@pytest.mark.contract("B-01", "B-03", "B-04", "B-05", "B-06", "B-07")
async def test_what_is_refused(api: Api, subtests: pytest.Subtests) -> None:
    async with api.client() as client:
        file_id = await upload(client, line("a"))
    good = {"input_file_id": file_id, "endpoint": CHAT, "completion_window": "24h"}
    async with bare(api) as http:
        for change, param in REFUSED:
            with subtests.test(str(change)[:80]):
                body = {key: value for key, value in (good | change).items() if value is not None}
                # The standard library escapes what UTF-8 cannot hold, as a hostile client would.
                reply = await http.post(
                    "/batches",
                    content=json.dumps(body),
                    headers={"content-type": "application/json"},
                )
                assert (reply.status_code, reply.json()["error"]["param"]) == (400, param)
        assert (await http.get("/batches")).json()["data"] == []


async def test_files_that_cannot_be_input(api: Api) -> None:
    async with api.client() as client, api.client(api.other_key) as other:
        evals = await client.files.create(file=line("a"), purpose="evals")
        theirs = await upload(other, line("a"))
        for file_id in (evals.id, theirs):
            with pytest.raises(openai.BadRequestError) as refused:
                await client.batches.create(
                    input_file_id=file_id, endpoint=CHAT, completion_window="24h"
                )
            assert refused.value.param == "input_file_id"


@pytest.mark.contract("R-27", "R-28", "R-30", "R-31", "T-29")
async def test_listing_and_paging(api: Api) -> None:
    async with api.client() as client:
        file_id = await upload(client, line("a"))

        async def create() -> str:
            batch = await client.batches.create(
                input_file_id=file_id, endpoint=CHAT, completion_window="24h"
            )
            return batch.id

        made = [await create() for _ in range(5)]
        newest = made[::-1]
        assert [batch.id async for batch in client.batches.list()] == newest
        seen = []
        async for batch in client.batches.list(limit=2):
            seen.append(batch.id)
            await create()  # new ones do not shift the pages
        assert seen == newest
        page = await client.batches.list(limit=10)
        assert not page.has_more
        assert (await client.batches.list(limit=9)).has_more
        async with api.client(api.other_key) as other:
            assert (await other.batches.list()).data == []
            with pytest.raises(openai.NotFoundError, match="No batch found"):
                await other.batches.retrieve(made[0])
            with pytest.raises(openai.NotFoundError):
                await other.batches.cancel(made[0])


BAD_READS = (
    ("/batches?limit=0", 400),
    ("/batches?limit=101", 400),
    ("/batches?limit=x", 400),
    ("/batches?after=batch_unknown", 404),
    ("/batches?after=%00", 404),
    ("/batches/batch_unknown", 404),
    ("/batches/%00", 404),
)


async def test_bad_reads(api: Api, subtests: pytest.Subtests) -> None:
    async with bare(api) as http:
        for path, status in BAD_READS:
            with subtests.test(path):
                reply = await http.get(path)
                assert reply.status_code == status
                assert set(reply.json()["error"]) == {"message", "type", "param", "code"}


async def test_cancel(api: Api, database: Database) -> None:
    async with api.client() as client:
        file_id = await upload(client, line("a"))
        batch = await client.batches.create(
            input_file_id=file_id, endpoint=CHAT, completion_window="24h"
        )
        cancelling = await client.batches.cancel(batch.id)
        assert cancelling.status == "cancelling"
        assert isinstance(cancelling.cancelling_at, int)
        assert await client.batches.cancel(batch.id) == cancelling

        failed = await client.batches.create(
            input_file_id=file_id, endpoint=CHAT, completion_window="24h"
        )
        async with database.unit_of_work() as session:
            await move(session, failed.id, BatchStatus.FAILED)
        with pytest.raises(openai.ConflictError, match="Cannot cancel a batch") as refused:
            await client.batches.cancel(failed.id)
        assert refused.value.response.headers["x-should-retry"] == "false"
        with pytest.raises(openai.NotFoundError):
            await client.batches.cancel("batch_unknown")


async def test_the_input_of_a_live_batch_stays(api: Api, database: Database) -> None:
    async with api.client() as client:
        file_id = await upload(client, line("a"))
        batch = await client.batches.create(
            input_file_id=file_id, endpoint=CHAT, completion_window="24h"
        )
        with pytest.raises(openai.ConflictError, match=batch.id) as refused:
            await client.files.delete(file_id)
        assert refused.value.code == "file_in_use"
        assert (await client.files.content(file_id)).content == line("a")

        # Not even its own expiry takes the bytes from under a live batch.
        async with database.unit_of_work() as session:
            row = await session.get_one(File, file_id)
            row.expires_at = row.created_at
        assert await collect_files(database, api.app.state.file_store) == 0
        assert await validate(database, api.app.state.file_store, batch.id) == "in_progress"

        async with database.unit_of_work() as session:
            await move(session, batch.id, BatchStatus.CANCELLING)
            await move(session, batch.id, BatchStatus.CANCELLED)
        assert await collect_files(database, api.app.state.file_store) == 1


async def test_a_deleted_file_cannot_become_an_input(api: Api) -> None:
    async with api.client() as client:
        file_id = await upload(client, line("a"))
        await client.files.delete(file_id)
        with pytest.raises(openai.BadRequestError, match="No such File object"):
            await client.batches.create(
                input_file_id=file_id, endpoint=CHAT, completion_window="24h"
            )
