"""What a bucket's refusals become: the answers of MinIO, Ceph and S3, from a stand-in."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from api.batch_errors import StorageFull, StorageUnavailable, StoredObjectMissing
from batch.files import FileStore, file_store_from_url

ANSWER = """<?xml version="1.0" encoding="UTF-8"?>
<Error><Code>{}</Code><Message>No.</Message><Resource>/coserve/x</Resource></Error>"""


@asynccontextmanager
async def refusing(status: int, code: str) -> AsyncIterator[str]:
    """The address of a server that answers every request so."""

    async def answer(request: web.Request) -> web.Response:
        await request.read()
        return web.Response(status=status, text=ANSWER.format(code), content_type="application/xml")

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@pytest.fixture
def store_at(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], FileStore]:
    """Makes a store as an operator does: from URL and environment."""

    def make(endpoint: str) -> FileStore:
        environment = {
            "AWS_ENDPOINT": endpoint,
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": "us-east-1",
            "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "false",
            "AWS_ALLOW_HTTP": "true",
        }
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        return file_store_from_url("s3://coserve/x")

    return make


async def a_chunk() -> AsyncIterator[bytes]:
    yield b"0123456789"


@pytest.mark.parametrize(
    ("status", "code"),
    [(507, "XMinioStorageFull"), (403, "QuotaExceeded"), (507, "InsufficientStorage")],
)
async def test_a_full_bucket_is_said(
    store_at: Callable[[str], FileStore], status: int, code: str
) -> None:
    async with refusing(status, code) as endpoint:
        with pytest.raises(StorageFull):
            await store_at(endpoint).put("file-1", a_chunk())


async def test_refused_credentials_are_no_missing_file(
    store_at: Callable[[str], FileStore],
) -> None:
    async with refusing(403, "SignatureDoesNotMatch") as endpoint:
        store = store_at(endpoint)
        with pytest.raises(StorageUnavailable) as refused:
            await store.put("file-1", a_chunk())
        assert "Signature" not in refused.value.message, "the cause is for the log"
        with pytest.raises(StorageUnavailable):
            await store.size("file-1")
        with pytest.raises(StorageUnavailable):
            await store.read_range("file-1", 0, 1)
        with pytest.raises(StorageUnavailable):
            await store.delete("file-1")


async def test_what_is_not_there_is_missing(store_at: Callable[[str], FileStore]) -> None:
    async with refusing(404, "NoSuchKey") as endpoint:
        store = store_at(endpoint)
        with pytest.raises(StoredObjectMissing):
            await store.size("file-1")
        with pytest.raises(StoredObjectMissing):
            await store.read_range("file-1", 0, 1)
        await store.delete("file-1")


@pytest.mark.parametrize(("status", "code"), [(403, "SlowDown"), (429, "TooManyRequests")])
async def test_a_bucket_with_too_many_requests_is_busy(
    store_at: Callable[[str], FileStore], status: int, code: str
) -> None:
    async with refusing(status, code) as endpoint:
        with pytest.raises(StorageUnavailable, match="is busy"):
            await store_at(endpoint).put("file-1", a_chunk())
    with pytest.raises(StorageUnavailable, match="cannot be reached"):
        await file_store_from_url("s3://coserve/x").size("file-1")
