"""What a bucket's refusals become: the answers of MinIO, Ceph and S3, from a stand-in."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from api.batch_errors import StorageFull, StorageUnavailable, StoredObjectMissing
from batch.files import FileStore, file_store_from_url
from batch.files.s3 import ObjectFileStore

ANSWER = """<?xml version="1.0" encoding="UTF-8"?>
<Error><Code>{}</Code><Message>No.</Message><Resource>/coserve/x</Resource></Error>"""


@asynccontextmanager
async def refusing(status: int, code: str) -> AsyncIterator[str]:
    """The address of a server that answers every request so."""

    async def answer(request: web.Request) -> web.Response:
        await request.read()
        return web.Response(status=status, text=ANSWER.format(code), content_type="application/xml")

    runner = web.AppRunner(_app(answer))
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


async def test_a_silent_bucket_is_given_up_and_holds_nothing_of_ours(
    store_at: Callable[[str], FileStore],
) -> None:
    over, num_open, num_closed = asyncio.Event(), 0, 0

    async def silent(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal num_open, num_closed
        num_open += 1
        await over.wait()
        writer.close()
        await writer.wait_closed()
        num_closed += 1

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    store_at(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")  # sets the environment
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(1))
    store = ObjectFileStore.from_url("s3://coserve/x", silence_s=2.0)
    calls = [asyncio.ensure_future(store.size(f"file-{number}")) for number in range(40)]
    async with asyncio.timeout(60):
        while num_open < len(calls):
            await asyncio.sleep(0.01)
        assert await asyncio.to_thread(int, "7") == 7
        assert await loop.getaddrinfo("localhost", 80)
        ended = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(error, StorageUnavailable) for error in ended)
    server.close()
    over.set()
    async with asyncio.timeout(10):
        while num_closed < num_open:
            await asyncio.sleep(0.01)


async def test_a_read_may_take_as_long_as_its_caller_does(
    store_at: Callable[[str], FileStore],
) -> None:
    """A slow client reads what no buffer holds, with pauses longer than a server may be silent."""
    size, silence_s = 30_000_000, 1.0

    async def answer(request: web.Request) -> web.StreamResponse:
        headers = {"content-length": str(size), "last-modified": "Wed, 21 Oct 2015 07:28:00 GMT"}
        ranged = request.headers.get("range")
        if ranged:
            headers["content-range"] = f"bytes 0-{size - 1}/{size}"
        response = web.StreamResponse(status=206 if ranged else 200, headers=headers)
        await response.prepare(request)
        if request.method == "GET":
            for _ in range(size // 50_000):
                await response.write(b"x" * 50_000)
        return response

    async with TestServer(_app(answer)) as server:
        store_at(str(server.make_url("")).rstrip("/"))
        store = ObjectFileStore.from_url("s3://coserve/x", silence_s=silence_s)
        num_bytes, num_pauses = 0, 0
        async for chunk in store.stream("file-1"):
            num_bytes += len(chunk)
            if num_pauses < 3 and num_bytes > num_pauses * 8_000_000:
                num_pauses += 1
                await asyncio.sleep(1.5 * silence_s)
        assert num_bytes == size


def _app(answer: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> web.Application:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    return app


def test_options_of_the_connection_are_the_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_READ_TIMEOUT", "7s")
    monkeypatch.setenv("AWS_PROXY_URL", "http://127.0.0.1:9")
    ours = ObjectFileStore.from_url("s3://coserve/x")._store
    assert ours.client_options is not None  # type: ignore[union-attr]
    told = {**ours.client_options}  # type: ignore[union-attr]
    assert told.pop("timeout")
    assert told.pop("connect_timeout")
    assert told == {"read_timeout": "7s", "proxy_url": "http://127.0.0.1:9"}
