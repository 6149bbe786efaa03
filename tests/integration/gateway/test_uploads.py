"""Files that arrive in parts, over the official client and the bare wire."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from httpx import ASGITransport
from openai.types import Upload
from sqlalchemy import text

from batch.files import FileStore
from batch.intake import parted_upload
from gateway.http.app import create_app
from store.session import Database
from tests.fixtures.live_gateway import Api

CONTENT = b'{"custom_id": "a"}\n' * 100


@pytest.fixture
async def client(api: Api) -> AsyncIterator[openai.AsyncOpenAI]:
    async with api.client() as client:
        yield client


async def begin(client: openai.AsyncOpenAI, num_bytes: int = len(CONTENT), **more: Any) -> Upload:
    return await client.uploads.create(
        filename="in.jsonl", purpose="batch", bytes=num_bytes, mime_type="application/jsonl", **more
    )


async def add(client: openai.AsyncOpenAI, upload: Upload, content: bytes) -> str:
    return (await client.uploads.parts.create(upload.id, data=content)).id


async def age(database: Database, upload: Upload, hours: int) -> None:
    async with database.unit_of_work() as session:
        moved = f"UPDATE uploads SET expires_at = expires_at - interval '{hours} hours'"
        await session.execute(text(f"{moved} WHERE id = :id"), {"id": upload.id})


def parts_on_disk(api: Api) -> list[Path]:
    return list(api.files_folder.rglob("part_*"))


def file_store(api: Api) -> FileStore:
    store: FileStore = api.app.state.file_store
    return store


@pytest.mark.contract("F-32")
async def test_an_upload_from_beginning_to_end(api: Api, client: openai.AsyncOpenAI) -> None:
    upload = await begin(client)
    assert upload.id.startswith("upload_")
    assert (upload.object, upload.status, upload.file) == ("upload", "pending", None)
    assert (upload.bytes, upload.filename, upload.purpose) == (len(CONTENT), "in.jsonl", "batch")
    assert upload.expires_at - upload.created_at == parted_upload.LIFETIME_S
    part = await client.uploads.parts.create(upload.id, data=CONTENT)
    assert part.id.startswith("part_")
    assert (part.object, part.upload_id) == ("upload.part", upload.id)
    done = await client.uploads.complete(upload.id, part_ids=[part.id])
    assert (done.id, done.status) == (upload.id, "completed")
    assert done.file is not None
    assert (done.file.bytes, done.file.filename) == (len(CONTENT), "in.jsonl")
    assert done.file.expires_at == done.file.created_at + 30 * 86400
    assert (await client.files.content(done.file.id)).content == CONTENT
    batch = await client.batches.create(
        input_file_id=done.file.id, endpoint="/v1/chat/completions", completion_window="24h"
    )
    assert batch.status == "validating"
    assert parts_on_disk(api) == []


@pytest.mark.contract("F-32")
async def test_the_clients_own_way_in_chunks(api: Api, client: openai.AsyncOpenAI) -> None:
    done = await client.uploads.upload_file_chunked(
        file=CONTENT,
        filename="in.jsonl",
        bytes=len(CONTENT),
        mime_type="application/jsonl",
        purpose="batch",
        part_size=700,
        md5=hashlib.md5(CONTENT, usedforsecurity=False).hexdigest(),
    )
    assert done.file is not None
    assert (await client.files.content(done.file.id)).content == CONTENT


@pytest.mark.contract("F-32")
@pytest.mark.parametrize(
    ("wrong", "param"),
    [
        ({"purpose": "batch_output"}, "purpose"),
        ({"bytes": 0}, "bytes"),
        ({"bytes": 200 * 1024 * 1024 + 1}, "bytes"),
        ({"bytes": "12"}, "bytes"),
        ({"expires_after": {"anchor": "created_at", "seconds": 5}}, "expires_after[seconds]"),
        ({"mime_type": None}, "mime_type"),
    ],
)
async def test_what_cannot_begin_is_refused_by_name(
    api: Api, wrong: dict[str, Any], param: str
) -> None:
    body = {"filename": "a", "purpose": "batch", "bytes": 9, "mime_type": "text/plain"} | wrong
    headers = {"authorization": f"Bearer {api.key}"}
    async with httpx.AsyncClient(base_url=api.base_url, headers=headers) as http:
        reply = await http.post("/uploads", json=body)
        assert reply.status_code in (400, 413), reply.text
        assert reply.json()["error"]["param"] == param


@pytest.mark.contract("F-33")
async def test_parts_come_at_once_and_outlive_a_restart(
    api: Api, client: openai.AsyncOpenAI
) -> None:
    upload = await begin(client)
    pieces = [CONTENT[i : i + 500] for i in range(0, len(CONTENT), 500)]
    ids = await asyncio.gather(*(add(client, upload, piece) for piece in reversed(pieces)))
    lost = await add(client, upload, pieces[0])  # its answer was lost: it is sent again
    again = create_app(api.app.state.settings)
    headers = {"authorization": f"Bearer {api.key}"}
    async with (
        again.router.lifespan_context(again),
        httpx.AsyncClient(
            transport=ASGITransport(again), base_url="http://again/v1", headers=headers
        ) as http,
    ):
        body = {"part_ids": ids[::-1]}
        reply = await http.post(f"/uploads/{upload.id}/complete", json=body)
    assert reply.status_code == 200, reply.text
    file_id = reply.json()["file"]["id"]
    assert (await client.files.content(file_id)).content == CONTENT
    assert parts_on_disk(api) == []
    assert lost not in ids


@pytest.mark.contract("F-34")
async def test_a_completion_is_checked(api: Api, client: openai.AsyncOpenAI) -> None:
    upload = await begin(client)
    first, second = await add(client, upload, CONTENT[:99]), await add(client, upload, CONTENT[99:])
    other = await add(client, await begin(client), CONTENT)
    for part_ids in ([first], [first, first], [first, second, other], [other], []):
        with pytest.raises(openai.BadRequestError) as refused:
            await client.uploads.complete(upload.id, part_ids=part_ids)
        assert refused.value.param == "part_ids"
    with pytest.raises(openai.BadRequestError) as refused:
        await client.uploads.complete(upload.id, part_ids=[first, second], md5="0" * 32)
    assert refused.value.param == "md5"
    assert len(list(api.files_folder.rglob("file-*"))) == 0, "what was refused left nothing"
    done = await client.uploads.complete(upload.id, part_ids=[first, second])
    again = await client.uploads.complete(upload.id, part_ids=[first, second])
    assert done.file is not None
    assert again == done, "a client that lost the answer asks again"
    with pytest.raises(openai.ConflictError):
        await client.uploads.complete(upload.id, part_ids=[second, first])
    with pytest.raises(openai.ConflictError):
        await client.uploads.cancel(upload.id)


@pytest.mark.contract("F-34")
async def test_completions_at_once_make_one_file(api: Api, client: openai.AsyncOpenAI) -> None:
    upload = await begin(client)
    part_ids = [await add(client, upload, CONTENT[:9]), await add(client, upload, CONTENT[9:])]
    made = await asyncio.gather(
        *(client.uploads.complete(upload.id, part_ids=part_ids) for _ in range(8))
    )
    assert len({one.file.id for one in made if one.file is not None}) == 1
    assert len((await client.files.list()).data) == 1
    assert len(list(api.files_folder.rglob("file-*"))) == 1


@pytest.mark.contract("F-35")
async def test_a_cancelled_upload_is_gone(api: Api, client: openai.AsyncOpenAI) -> None:
    upload = await begin(client)
    part_id = await add(client, upload, CONTENT)
    assert len(parts_on_disk(api)) == 1
    assert (await client.uploads.cancel(upload.id)).status == "cancelled"
    assert (await client.uploads.cancel(upload.id)).status == "cancelled"
    assert parts_on_disk(api) == []
    for late in (
        client.uploads.parts.create(upload.id, data=b"x"),
        client.uploads.complete(upload.id, part_ids=[part_id]),
    ):
        with pytest.raises(openai.ConflictError) as refused:
            await late
        assert refused.value.code == "upload_ended"
    with pytest.raises(openai.NotFoundError):
        await client.uploads.cancel("upload_none")


@pytest.mark.contract("F-35")
async def test_an_abandoned_upload_is_collected(
    api: Api, client: openai.AsyncOpenAI, database: Database
) -> None:
    upload, kept = await begin(client), await begin(client)
    part_id = await add(client, upload, CONTENT)
    await add(client, kept, CONTENT)
    await age(database, upload, 24)
    with pytest.raises(openai.ConflictError, match="expired"):
        await client.uploads.complete(upload.id, part_ids=[part_id])
    assert await parted_upload.collect_parts(database, file_store(api)) == 0, "it may be read yet"
    await age(database, upload, 2)
    assert await parted_upload.collect_parts(database, file_store(api)) == 1
    assert len(parts_on_disk(api)) == 1
    with pytest.raises(openai.NotFoundError):
        await client.uploads.cancel(upload.id)


@pytest.mark.contract("F-35")
async def test_a_part_that_is_refused_leaves_nothing(
    api: Api, client: openai.AsyncOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    upload = await begin(client, 100)
    monkeypatch.setattr(parted_upload, "MAX_PART_BYTES", 150)
    with pytest.raises(openai.APIStatusError) as refused:
        await add(client, upload, b"x" * 151)
    assert (refused.value.status_code, refused.value.code) == (413, "part_too_large")
    await add(client, upload, b"x" * 150)
    with pytest.raises(openai.APIStatusError) as refused:
        await add(client, upload, b"x" * 51)  # more than twice the file
    assert refused.value.status_code == 413
    headers = {"authorization": f"Bearer {api.key}"}
    async with httpx.AsyncClient(base_url=api.base_url, headers=headers) as http:
        reply = await http.post(f"/uploads/{upload.id}/parts", files={"file": ("a", b"x")})
        assert (reply.status_code, reply.json()["error"]["param"]) == (400, "data")
    assert len(parts_on_disk(api)) == 1


@pytest.mark.contract("F-36")
async def test_a_projects_limit_counts_parts(
    api: Api, client: openai.AsyncOpenAI, database: Database
) -> None:
    async with database.unit_of_work() as session:
        limited = "UPDATE projects SET stored_bytes = 1000 WHERE id = 'proj_default'"
        await session.execute(text(limited))
    with pytest.raises(openai.RateLimitError) as refused:
        await begin(client, 1001)
    assert refused.value.code == "storage_limit_exceeded"
    upload, other = await begin(client, 600), await begin(client, 600)
    part_id = await add(client, upload, b"x" * 600)
    for more in (add(client, other, b"x" * 401), begin(client, 401)):
        with pytest.raises(openai.RateLimitError):
            await more
    done = await client.uploads.complete(upload.id, part_ids=[part_id])
    assert done.status == "completed", "its parts do not count beside the file they become"
    await add(client, other, b"x" * 400)
    with pytest.raises(openai.RateLimitError):
        await add(client, other, b"x")
    await client.uploads.cancel(other.id)
    assert (await begin(client, 400)).status == "pending"
