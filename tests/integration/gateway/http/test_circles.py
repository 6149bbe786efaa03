"""What a request leaves is freed at once: the collector would stop every stream to find it."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import Iterator

import pytest
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from tests.integration.gateway.conftest import Online

NUM = 20
UPLOAD = (
    b'--a\r\ncontent-disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
    b'--a\r\ncontent-disposition: form-data; name="file"; filename="a.jsonl"\r\n\r\n'
    b"{}\n\r\n--a--\r\n"
)


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def num_left() -> int:
    return sum(isinstance(one, RequestResponseCycle) for one in gc.get_objects())


async def send(
    online: Online, method: str, path: str, body: bytes, kind: str = "application/json"
) -> int:
    """One request on a connection of its own; its status."""
    host, port = online.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(
        f"{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n"
        f"authorization: Bearer {online.key}\r\ncontent-type: {kind}\r\n"
        f"content-length: {len(body)}\r\n\r\n".encode()
        + body
    )
    status = (await reader.read())[9:12]
    writer.close()
    return int(status)


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize(
    ("method", "path", "more", "status"),
    [
        ("POST", "/v1/chat/completions", {}, 200),
        ("POST", "/v1/chat/completions", {"stream": True}, 200),
        ("POST", "/v1/chat/completions", {"model": "none"}, 404),
        ("POST", "/v1/responses", {"input": "x", "messages": None}, 400),
        ("GET", "/v1/models", {}, 200),
        ("GET", "/v1/batches", {}, 200),
        ("GET", "/v1/none", {}, 404),
    ],
)
async def test_no_request_leaves_a_circle(
    online: Online, method: str, path: str, more: dict[str, object], status: int
) -> None:
    body = json.dumps(online.chat("Hello.", max_tokens=2) | more).encode()
    for _ in range(NUM):
        assert await send(online, method, path, body) == status
    await asyncio.sleep(0.05)
    assert num_left() <= 2


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize(
    ("path", "kind", "body", "status"),
    [
        ("/admin/login", "application/x-www-form-urlencoded", b"&" * 16_000, 400),
        ("/admin/login", "application/x-www-form-urlencoded", b"a=b&" * 2000, 400),
        ("/admin/login", "application/x-www-form-urlencoded", b"key=none", 403),
        ("/admin/login", "multipart/form-data; boundary=a", b"\r\n--ax" * 20_000, 415),
        ("/admin/none", "text/plain", b"a", 404),
        ("/v1/files", "multipart/form-data; boundary=a", b"\r\n--ax" * 20_000, 400),
        ("/v1/files", "multipart/form-data; boundary=a", UPLOAD, 200),
        ("/v1/files", "multipart/form-data; boundary=a", UPLOAD.replace(b"batch", b"none"), 400),
        ("/v1/files", "multipart/form-data; boundary=a", UPLOAD[:-20], 400),
        ("/v1/files", "application/json", b"{}", 415),
        ("/healthz", "application/json", b"{}", 405),
    ],
)
async def test_no_form_leaves_a_circle(
    online: Online, path: str, kind: str, body: bytes, status: int
) -> None:
    for _ in range(NUM):
        found = await send(online, "POST", path, body, kind)
        assert found == status
    await asyncio.sleep(0.05)
    assert num_left() <= 2
