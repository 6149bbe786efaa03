"""`/files` through the official client."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import httpx
import openai
import pytest
from sqlalchemy import func, select, text

from batch.finish.collect import collect_files
from store.models import File
from store.session import Database
from tests.fixtures.live_gateway import Api


def files_on_disk(api: Api) -> int:
    return sum(path.is_file() for path in api.files_folder.rglob("*"))


def bare(api: Api, key: str | None = None) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        base_url=api.base_url, headers={"authorization": f"Bearer {key or api.key}"}
    )


@pytest.mark.contract("F-01", "F-03", "F-04", "F-05", "F-13", "F-21", "F-22", "F-23", "F-26")
async def test_a_file_there_and_back(api: Api) -> None:
    data = bytes(range(256)) * 4096
    async with api.client() as client:
        file = await client.files.create(file=("in put.jsonl", data), purpose="batch")
        assert file.id.startswith("file-")
        assert (file.object, file.bytes, file.filename) == ("file", len(data), "in put.jsonl")
        assert (file.purpose, file.status) == ("batch", "processed")
        assert file.expires_at == file.created_at + 30 * 86400
        assert await client.files.retrieve(file.id) == file
        assert (await client.files.wait_for_processing(file.id)).status == "processed"

        content = await client.files.content(file.id)
        assert content.content == data
        headers = content.response.headers
        assert headers["content-type"] == "application/octet-stream"
        assert headers["content-length"] == str(len(data))
        assert headers["content-disposition"] == 'attachment; filename="in put.jsonl"'
        assert headers["x-request-id"].startswith("req_")

        deleted = await client.files.delete(file.id)
        assert (deleted.id, deleted.object, deleted.deleted) == (file.id, "file", True)
        for call in (client.files.retrieve, client.files.content, client.files.delete):
            with pytest.raises(openai.NotFoundError):
                await call(file.id)
    assert files_on_disk(api) == 0


@pytest.mark.contract("F-01", "F-04", "F-12", "F-13")
async def test_nameless_bytes_and_expiry(api: Api) -> None:
    async with api.client() as client:
        plain = await client.files.create(file=b"Example data", purpose="assistants")
        assert (plain.filename, plain.expires_at) == ("upload", None)
        expiring = await client.files.create(
            file=b"x",
            purpose="batch",
            expires_after={"anchor": "created_at", "seconds": 3600},
        )
        assert expiring.expires_at == expiring.created_at + 3600
    async with bare(api) as http:
        assert "expires_at" not in (await http.get(f"/files/{plain.id}")).json()


@pytest.mark.contract("F-21", "Z-04")
async def test_what_an_unknown_file_says(api: Api) -> None:
    async with bare(api) as http:
        for file_id in ("file-abc", "file-%00", "x" * 500, "é", "a'b"):
            reply = await http.get(f"/files/{file_id}")
            assert reply.status_code == 404, file_id
            error = reply.json()["error"]
            assert error["message"].startswith("No such File object: ")
            assert (error["type"], error["param"], error["code"]) == (
                "invalid_request_error",
                "id",
                None,
            )


@pytest.mark.contract("T-29")
async def test_files_of_others_are_unknown(api: Api) -> None:
    async with api.client() as mine, api.client(api.other_key) as other:
        file = await mine.files.create(file=b"secret", purpose="batch")
        for call in (other.files.retrieve, other.files.content, other.files.delete):
            with pytest.raises(openai.NotFoundError, match="No such File object"):
                await call(file.id)
        assert (await other.files.list()).data == []
        with pytest.raises(openai.NotFoundError):
            await other.files.list(after=file.id)
        assert (await mine.files.content(file.id)).content == b"secret"


@pytest.mark.contract("F-14", "F-16", "F-17", "F-18", "F-19", "F-29")
async def test_listing_and_paging(api: Api) -> None:
    async with api.client() as client:
        made = [
            (await client.files.create(file=("same.jsonl", b"x"), purpose=purpose)).id
            for purpose in ("batch", "evals", "batch", "batch", "evals")
        ]
        newest = made[::-1]
        assert [file.id async for file in await client.files.list()] == newest
        assert [file.id async for file in client.files.list(limit=2)] == newest
        assert [file.id async for file in client.files.list(limit=2, order="asc")] == made
        batch_only = [file.id async for file in client.files.list(limit=1, purpose="batch")]
        assert batch_only == [made[3], made[2], made[0]]
        page = await client.files.list(limit=5)
        assert not page.has_more
        page = await client.files.list(limit=4)
        assert page.has_more
        assert (await client.files.list(purpose="unheard\0of")).data == []
        # A caller that deletes what it lists still meets every file.
        async for file in client.files.list(limit=2):
            await client.files.delete(file.id)
        assert (await client.files.list()).data == []
    async with bare(api) as http:
        assert (await http.get("/files")).json() == {
            "object": "list",
            "data": [],
            "first_id": None,
            "last_id": None,
            "has_more": False,
        }


BAD_LISTINGS = (
    ("limit=0", 400, "limit"),
    ("limit=10001", 400, "limit"),
    ("limit=abc", 400, "limit"),
    ("order=up", 400, "order"),
    ("after=file-unknown", 404, "after"),
    ("after=%00", 404, "after"),
)


@pytest.mark.contract("F-15", "F-20")
async def test_bad_listings(api: Api, subtests: pytest.Subtests) -> None:
    async with bare(api) as http:
        for query, status, param in BAD_LISTINGS:
            with subtests.test(query):
                reply = await http.get(f"/files?{query}")
                assert (reply.status_code, reply.json()["error"]["param"]) == (status, param)


@pytest.mark.contract("F-24")
async def test_ranges(api: Api) -> None:
    async with bare(api) as http:
        form = {"file": ("a.bin", b"0123456789")}
        file = (await http.post("/files", files=form, data={"purpose": "evals"})).json()
        path = f"/files/{file['id']}/content"
        part = await http.get(path, headers={"range": "bytes=2-5"})
        assert (part.status_code, part.content) == (206, b"2345")
        assert part.headers["content-range"] == "bytes 2-5/10"
        assert part.headers["content-length"] == "4"
        rest = await http.get(path, headers={"range": "bytes=6-", "if-range": part.headers["etag"]})
        assert (rest.status_code, rest.content) == (206, b"6789")
        whole = await http.get(path, headers={"range": "bytes=6-", "if-range": '"other"'})
        assert (whole.status_code, whole.content) == (200, b"0123456789")
        outside = await http.get(path, headers={"range": "bytes=10-"})
        assert outside.status_code == 416
        assert outside.headers["content-range"] == "bytes */10"


async def test_content_that_is_gone_is_an_error_and_not_a_cut_off_reply(api: Api) -> None:
    async with api.client() as client:
        file = await client.files.create(file=b"x", purpose="batch")
        await api.app.state.file_store.delete(file.id)
        with pytest.raises(openai.NotFoundError, match="gone"):
            await client.files.content(file.id)


BAD_FORMS: tuple[tuple[dict[str, str], str], ...] = (
    ({}, "purpose"),
    ({"purpose": "unheard-of"}, "purpose"),
    ({"purpose": "batch", "expires_after[anchor]": "created_at"}, "expires_after[seconds]"),
    (
        {
            "purpose": "batch",
            "expires_after[anchor]": "created_at",
            "expires_after[seconds]": "60",
        },
        "expires_after[seconds]",
    ),
)


@pytest.mark.contract("F-06", "F-11", "F-12")
async def test_bad_forms(api: Api, subtests: pytest.Subtests) -> None:
    async with bare(api) as http:
        for fields, param in BAD_FORMS:
            with subtests.test(str(fields)):
                reply = await http.post("/files", files={"file": ("a", b"x")}, data=fields)
                assert (reply.status_code, reply.json()["error"]["param"]) == (400, param)
    assert files_on_disk(api) == 0


@pytest.mark.contract("F-11")
async def test_bodies_that_are_no_form(api: Api) -> None:
    async with bare(api) as http:
        assert (await http.post("/files", json={"purpose": "batch"})).status_code == 415
        reply = await http.post(
            "/files",
            content=b"--b\r\nnonsense",
            headers={"content-type": "multipart/form-data; boundary=b"},
        )
        assert reply.status_code == 400
        reply = await http.post("/files", data={"purpose": "batch"}, files={"other": b""})
        assert (reply.status_code, reply.json()["error"]["param"]) == (400, "other")
        reply = await http.post("/files", files={"purpose": (None, b"batch")})
        assert (reply.status_code, reply.json()["error"]["param"]) == (400, "file")


async def test_no_key_no_upload(api: Api) -> None:
    async with httpx.AsyncClient(base_url=api.base_url) as http:
        reply = await http.post("/files", files={"file": b"x"}, data={"purpose": "batch"})
    assert reply.status_code == 401
    assert files_on_disk(api) == 0


@pytest.mark.contract("F-28")
async def test_expired_files_are_gone_and_collected(api: Api, database: Database) -> None:
    async with api.client() as client:
        kept = await client.files.create(file=b"kept", purpose="batch")
        expired = await client.files.create(file=b"expired", purpose="batch")
        async with database.unit_of_work() as session:
            row = await session.get_one(File, expired.id)
            row.expires_at = row.created_at + timedelta(microseconds=1)
        with pytest.raises(openai.NotFoundError):
            await client.files.retrieve(expired.id)
        with pytest.raises(openai.NotFoundError):
            await client.files.content(expired.id)
        assert [file.id async for file in client.files.list()] == [kept.id]
        assert files_on_disk(api) == 2
        assert await collect_files(database, api.app.state.file_store) == 1
        assert await collect_files(database, api.app.state.file_store) == 0
        assert files_on_disk(api) == 1
        assert (await client.files.content(kept.id)).content == b"kept"


@pytest.mark.contract("Z-11")
async def test_times_come_from_one_clock(api: Api, database: Database) -> None:
    async with api.client() as client:
        file = await client.files.create(file=b"x", purpose="batch")
    async with database.unit_of_work() as session:
        row = await session.get_one(File, file.id)
        assert row.expires_at == row.created_at + timedelta(days=30)
        assert (await session.scalar(select(func.count()).select_from(File))) == 1
        age = await session.scalar(text("SELECT now() - created_at FROM files"))
        assert timedelta(0) <= age < timedelta(seconds=60)


async def test_many_uploads_at_once(api: Api) -> None:
    async with api.client() as client:

        async def upload(number: int) -> str:
            data = bytes([number]) * 300_000
            return (await client.files.create(file=data, purpose="evals")).id

        async with asyncio.TaskGroup() as tasks:
            sent = [tasks.create_task(upload(number)) for number in range(16)]
        for number, task in enumerate(sent):
            content = (await client.files.content(task.result())).content
            assert content == bytes([number]) * 300_000
