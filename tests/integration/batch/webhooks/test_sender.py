"""One POST over real sockets: what is sent, what is refused, what is never waited for."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import orjson
import pytest

from batch.webhooks import signature
from batch.webhooks.events import body_of
from batch.webhooks.names import ReceiverNames
from batch.webhooks.sender import MAX_ANSWER_BYTES, Attempt, Failure, Sender
from batch.webhooks.targets import TargetPolicy
from service.clock import SystemClock
from tests.fixtures.receiver import LOOPBACK, receiving

KEY = signature.new_key()
BODY = body_of("evt_1", "batch.completed", "batch_1", SystemClock().now())
LOCAL = TargetPolicy.of(LOOPBACK)


def _sender(policy: TargetPolicy = LOCAL, timeout_s: float = 5.0) -> Sender:
    return Sender(policy, SystemClock(), ReceiverNames(), timeout_s=timeout_s)


async def _post(url: str, sender: Sender | None = None) -> Attempt:
    return await (sender or _sender()).post(url, webhook_id="wh_1", body=BODY, keys=[KEY])


@pytest.mark.contract("W-03", "W-04")
async def test_a_post_is_what_the_sdk_expects() -> None:
    async with receiving(status=204) as receiver:
        assert await _post(receiver.url) == Attempt(204, None)
    (received,) = receiver.received
    assert received.headers["Content-Type"] == "application/json"
    assert received.webhook_id == "wh_1"
    now = SystemClock().now().timestamp()
    assert abs(int(received.headers["webhook-timestamp"]) - now) < 5
    assert orjson.loads(received.body)["type"] == "batch.completed"
    assert received.unwrap(signature.shown(KEY)).type == "batch.completed"


@pytest.mark.parametrize("status", [300, 400, 404, 410, 429, 500, 503])
async def test_whatever_is_no_2xx_is_a_failure(status: int) -> None:
    async with receiving(status=status) as receiver:
        assert await _post(receiver.url) == Attempt(status, Failure.STATUS)


@pytest.mark.contract("W-08")
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirects_are_not_followed(status: int) -> None:
    async with receiving() as inner, receiving(status=status) as outer:
        outer.headers["location"] = inner.url
        assert await _post(outer.url) == Attempt(status, Failure.STATUS)
        assert len(outer.received) == 1
        assert inner.received == []


@pytest.mark.contract("W-08")
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "127.1", "2130706433"])
async def test_the_address_is_vetted_when_it_is_connected_to(host: str) -> None:
    """As if the URL had been allowed once: a name that points inwards now, or a changed setting."""
    async with receiving() as receiver:
        port = receiver.url.split(":")[2].split("/")[0]
        for policy in (TargetPolicy(), TargetPolicy.of("10.0.0.0/8")):
            for scheme in ("http", "https"):
                attempt = await _post(f"{scheme}://{host}:{port}/hook", _sender(policy))
                # The last two spellings may be no host to the client either.
                refused = (Failure.REFUSED_ADDRESS, Failure.CONNECTION)
                num_words = 2 if host[-1].isdigit() and host != "127.0.0.1" else 1
                assert attempt.failure in refused[:num_words]
        assert receiver.received == []


async def test_a_name_that_resolves_into_an_allowed_network_is_served() -> None:
    async with receiving() as receiver:
        url = receiver.url.replace("127.0.0.1", "localhost")
        assert (await _post(url)).failure is None


async def test_the_environment_steers_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async with receiving() as proxy, receiving() as receiver:
        for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        monkeypatch.setenv("no_proxy", "")
        assert (await _post(receiver.url)).failure is None
        assert proxy.received == []
        assert len(receiver.received) == 1


async def test_a_receiver_that_does_not_answer_is_given_up() -> None:
    async with receiving(delay_s=60) as receiver:
        sender = _sender(timeout_s=0.3)
        assert await _post(receiver.url, sender) == Attempt(None, Failure.TIMEOUT)
        assert len(receiver.received) == 1


@asynccontextmanager
async def _raw(answer: bytes, *, endless: bytes = b"") -> AsyncIterator[str]:
    """A server that says exactly this, then `endless` for ever."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
            while endless:
                writer.write(endless)
                await writer.drain()
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}/hook"
    finally:
        server.close()


async def test_an_endless_answer_is_not_read() -> None:
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    async with _raw(head, endless=b"10000\r\n" + b"x" * 65536 + b"\r\n") as url:
        assert await _post(url) == Attempt(200, None)


async def test_endless_headers_are_not_read() -> None:
    async with _raw(b"HTTP/1.1 200 OK\r\n", endless=b"x-more: " + b"y" * 1000 + b"\r\n") as url:
        attempt = await _post(url, _sender(timeout_s=2.0))
    assert attempt.status is None
    assert attempt.failure in (Failure.BAD_ANSWER, Failure.TIMEOUT, Failure.CONNECTION)


@pytest.mark.parametrize("answer", [b"SSH-2.0-OpenSSH\r\n\r\n", b"", b"HTTP/1.1 ooops\r\n\r\n"])
async def test_what_is_no_answer_is_a_failure(answer: bytes) -> None:
    async with _raw(answer) as url:
        attempt = await _post(url)
    assert attempt.status is None
    assert attempt.failure in (Failure.BAD_ANSWER, Failure.CONNECTION)


async def test_nobody_listens() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
        assert await _post(f"http://127.0.0.1:{port}/") == Attempt(None, Failure.CONNECTION)


async def test_a_certificate_of_nobody_we_trust_is_refused(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj",
         "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
         "-keyout", str(key), "-out", str(certificate)],
        check=True, capture_output=True, env={"PATH": os.environ["PATH"]},
    )  # fmt: skip
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    bodies: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        bodies.append(await reader.read(1000))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    try:
        for host in ("localhost", "127.0.0.1"):
            attempt = await _post(f"https://{host}:{port}/hook")
            assert attempt == Attempt(None, Failure.CERTIFICATE)
    finally:
        server.close()
    assert b"".join(bodies) == b"", "nothing was said to it"


@pytest.mark.parametrize(
    "piece",
    [
        b"HTTP/1.1 103 Early Hints\r\n\r\n",
        b"HTTP/1.1 102 Processing\r\nx: " + b"y" * 4000 + b"\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" * 1000,
    ],
)
async def test_answers_before_the_answer_have_a_bound(piece: bytes) -> None:
    num_sent, over = 0, asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal num_sent
        await reader.readuntil(b"\r\n\r\n")
        try:
            while True:
                writer.write(piece)
                num_sent += len(piece)
                await writer.drain()
        except OSError:
            over.set()
        finally:
            writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    attempt = await _post(f"http://127.0.0.1:{port}/", _sender(timeout_s=60))
    assert attempt == Attempt(None, Failure.BAD_ANSWER)
    async with asyncio.timeout(10):
        await over.wait()
    # What the kernel had room for beside it.
    assert num_sent < MAX_ANSWER_BYTES + (16 << 20)
    server.close()


async def test_some_answers_before_the_answer_are_passed_over() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 103 Early Hints\r\n\r\n" * 9)
        writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n" + b"x" * 1_000_000)
        with suppress(OSError):
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    assert await _post(f"http://127.0.0.1:{port}/") == Attempt(200, None)
    server.close()
