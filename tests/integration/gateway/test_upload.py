"""Uploads on the wire: chunked, interrupted, too large (rows F-09, F-30, F-31, T-23)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx
import orjson
import pytest

from batch.intake.upload import MAX_BATCH_FILE_BYTES
from gateway.http.refusal import LINGER_BYTES
from tests.fixtures.live_gateway import Api

BOUNDARY = "b0undary"
TYPE = f"multipart/form-data; boundary={BOUNDARY}"
MIB = 1024 * 1024


def field(name: str, value: bytes) -> bytes:
    head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n'
    return head.encode() + value + b"\r\n"


FILE_HEAD = (
    f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="in.jsonl"\r\n\r\n'
).encode()
END = f"\r\n--{BOUNDARY}--\r\n".encode()


def client(api: Api) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        base_url=api.base_url,
        headers={"authorization": f"Bearer {api.key}", "content-type": TYPE},
        timeout=60,
    )


def head(api: Api, *, content_length: int, authorized: bool = True) -> bytes:
    lines = [
        "POST /v1/files HTTP/1.1",
        "Host: localhost",
        f"Content-Type: {TYPE}",
        f"Content-Length: {content_length}",
    ]
    if authorized:
        lines.append(f"Authorization: Bearer {api.key}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def leftovers(api: Api) -> list[str]:
    return [path.name for path in api.files_folder.rglob("*") if path.is_file()]


async def listed(api: Api) -> list[str]:
    async with api.client() as openai_client:
        return [file.id async for file in openai_client.files.list()]


@pytest.mark.parametrize("file_first", [True, False])
@pytest.mark.contract("F-30")
async def test_chunked_transfer_in_any_order(api: Api, file_first: bool) -> None:
    data = bytes(range(256)) * 8192
    purpose = field("purpose", b"batch")

    async def body() -> AsyncIterator[bytes]:
        if not file_first:
            yield purpose
        yield FILE_HEAD
        for start in range(0, len(data), 50_000):
            yield data[start : start + 50_000]
        if file_first:
            yield b"\r\n" + purpose.removesuffix(b"\r\n")
        yield END

    async with client(api) as http:
        reply = await http.post("/files", content=body())
        assert reply.request.headers["transfer-encoding"] == "chunked"
        assert reply.status_code == 200, reply.text
        assert reply.json()["bytes"] == len(data)
        content = await http.get(f"/files/{reply.json()['id']}/content")
        assert content.content == data


@pytest.mark.contract("F-10")
async def test_a_declared_length_over_the_limit_is_refused_before_a_byte_is_sent(api: Api) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", api.port)
    writer.write(head(api, content_length=700 * MIB))
    async with asyncio.timeout(4):
        reply = await reader.readuntil(b"\r\n\r\n")
    assert reply.startswith(b"HTTP/1.1 413")
    assert b"connection: close" in reply.lower()
    body = await reader.read(4096)
    assert orjson.loads(body)["error"]["code"] == "file_too_large"
    writer.close()


async def test_a_form_that_was_read_to_its_end_and_refused_holds_nothing(api: Api) -> None:
    """A sender that keeps its side open is not waited for: nothing more can come."""
    form = field("purpose", b"nonsense") + FILE_HEAD + b"x" + END
    reader, writer = await asyncio.open_connection("127.0.0.1", api.port)
    writer.write(head(api, content_length=len(form)) + form)
    async with asyncio.timeout(10):
        assert (await reader.read()).startswith(b"HTTP/1.1 400")
    writer.close()


async def test_without_a_key_nothing_is_stored_and_the_reply_can_be_read(api: Api) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", api.port)
    writer.write(head(api, content_length=10 * MIB, authorized=False))
    async with asyncio.timeout(4):
        reply = await reader.readuntil(b"\r\n\r\n")
    assert reply.startswith(b"HTTP/1.1 401")
    writer.close()
    assert leftovers(api) == []


@pytest.mark.contract("F-09")
async def test_too_large_a_file_is_refused_midway_and_the_sender_learns_why(api: Api) -> None:
    """The sender never looks for a reply before it has sent everything, as many clients do."""

    async def body() -> AsyncIterator[bytes]:
        yield field("purpose", b"batch") + FILE_HEAD
        for _ in range(MAX_BATCH_FILE_BYTES // MIB + 50):
            yield bytes(MIB)
        yield END

    async with client(api) as http:
        reply = await http.post("/files", content=body())
    assert reply.status_code == 413
    assert reply.json()["error"]["code"] == "file_too_large"
    assert reply.json()["error"]["param"] == "file"
    assert leftovers(api) == []
    assert await listed(api) == []


async def test_a_sender_that_goes_on_after_the_refusal_is_cut_off(api: Api) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", api.port)
    writer.write(head(api, content_length=2000 * MIB))
    assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 413")
    num_sent = 0

    async def go_on() -> None:
        nonlocal num_sent
        while num_sent < 2000 * MIB:
            writer.write(bytes(MIB))
            await writer.drain()
            num_sent += MIB

    with pytest.raises(ConnectionError):
        await go_on()
    assert num_sent < LINGER_BYTES + 32 * MIB
    writer.close()


@pytest.mark.contract("F-31")
async def test_an_interrupted_upload_leaves_nothing(api: Api) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", api.port)
    writer.write(head(api, content_length=10 * MIB) + field("purpose", b"batch") + FILE_HEAD)
    writer.write(bytes(2 * MIB))
    await writer.drain()
    async with asyncio.timeout(10):
        while not leftovers(api):
            await asyncio.sleep(0.02)
        assert leftovers(api)[0].endswith(".part")
        writer.close()
        while leftovers(api):
            await asyncio.sleep(0.02)
    assert await listed(api) == []


async def test_a_form_cut_off_by_its_own_length_leaves_nothing(api: Api) -> None:
    async with client(api) as http:
        reply = await http.post("/files", content=field("purpose", b"batch") + FILE_HEAD + b"x")
    assert reply.status_code == 400
    assert "closing boundary" in reply.json()["error"]["message"]
    assert leftovers(api) == []
    assert await listed(api) == []


async def test_the_next_request_on_the_connection_is_served(api: Api) -> None:
    async with client(api) as http:
        for _ in range(3):
            body = field("purpose", b"evals") + FILE_HEAD + b"data" + END
            assert (await http.post("/files", content=body)).status_code == 200
            assert (await http.post("/files", content=b"--nonsense")).status_code == 400
    assert len(await listed(api)) == 3
