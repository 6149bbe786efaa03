"""The limits of a connection, over real sockets with short times."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import orjson
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Route

from gateway.http.connection import (
    MAX_HEAD_BYTES,
    MAX_HEADERS,
    MAX_TARGET_BYTES,
    ConnectionLimits,
    GuardedProtocol,
    guarded,
    sweep,
)
from gateway.http.disconnect import ClientGone, when_gone_of, while_connected
from gateway.http.per_address_limits import ConnectionCount
from gateway.http.reading import PIECE_BYTES, ReadingTurns
from tests.fixtures.listening import listening

SHORT_S = 0.3
GET = b"GET / HTTP/1.1\r\nhost: t\r\n"


@dataclass
class Served:
    port: int
    server: uvicorn.Server
    cuts: list[str] = field(default_factory=list)
    streams_ended: int = 0
    num_begun: int = 0
    num_gone: int = 0
    num_turns: int = 0
    most_waiting: int = 0

    async def say(self, data: bytes) -> bytes:
        """Send and read to the end."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(data)
        async with asyncio.timeout(5):
            try:
                return await reader.read()
            finally:
                writer.close()


@asynccontextmanager
async def serving(
    max_connections: int = 100, per_address: int = 100, budget_s: float = 1.0
) -> AsyncIterator[Served]:
    async def length(request: Request) -> PlainTextResponse:
        open_now = served.server.server_state.connections
        waiting = [len(one.pipeline) for one in open_now if isinstance(one, GuardedProtocol)]
        served.most_waiting = max(served.most_waiting, *waiting)
        return PlainTextResponse(str(len(await request.body())))

    async def turns(request: Request) -> PlainTextResponse:
        """How many turns the event loop took while the body came."""
        before = served.num_turns
        await request.body()
        return PlainTextResponse(str(served.num_turns - before))

    async def flood(_: Request) -> StreamingResponse:
        async def endless() -> AsyncIterator[bytes]:
            try:
                while True:
                    yield b"x" * 65536
                    await asyncio.sleep(0)  # once cut, sending does not wait any more
            finally:
                served.streams_ended += 1

        return StreamingResponse(endless())

    async def held(request: Request) -> PlainTextResponse:
        await request.body()
        served.num_begun += 1
        work = asyncio.Event().wait()
        try:
            await while_connected(request.receive, work, when_gone_of(request.scope))
        except ClientGone:
            served.num_gone += 1
        return PlainTextResponse("nobody reads this")

    routes = [
        Route("/", length, methods=["GET", "POST"]),
        Route("/turns", turns, methods=["POST"]),
        Route("/flood", flood),
        Route("/held", held, methods=["GET", "POST"]),
    ]
    app = Starlette(routes=routes)
    cuts: list[str] = []
    count = ConnectionCount(per_address)
    limits = ConnectionLimits(
        SHORT_S, SHORT_S, SHORT_S, max_connections, count, cuts.append, ReadingTurns(budget_s)
    )
    server = uvicorn.Server(
        uvicorn.Config(app, port=0, http=guarded(limits), lifespan="off", log_config=None)
    )

    async def sweeping() -> None:
        while True:
            await asyncio.sleep(0.05)
            sweep(server.server_state.connections, asyncio.get_running_loop().time())

    async with listening(server) as url:
        sweeps = asyncio.ensure_future(sweeping())
        served = Served(int(url.rpartition(":")[2]), server, cuts)
        try:
            yield served
        finally:
            sweeps.cancel()


def status_and_code(reply: bytes) -> tuple[int, str]:
    head, _, body = reply.partition(b"\r\n\r\n")
    assert b"\r\nx-request-id: req_" in head
    assert b"\r\nconnection: close" in head
    error = orjson.loads(body)["error"]
    assert list(error) == ["message", "type", "param", "code"]
    return int(head.split()[1]), error["code"]


@pytest.mark.parametrize(
    ("sent", "answer"),
    [
        (GET[:-4], (408, "request_timeout")),
        (b"\r\n", (408, "request_timeout")),
        (b"POST / HTTP/1.1\r\nhost: t\r\ncontent-length: 9\r\n\r\nabc", (408, "request_timeout")),
        (
            b"POST / HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n",
            (408, "request_timeout"),
        ),
        (GET + b"a: b\r\n" * MAX_HEADERS + b"\r\n", (431, "headers_too_large")),
        (GET + b"a: " + b"b" * MAX_HEAD_BYTES + b"\r\n\r\n", (431, "headers_too_large")),
        (GET + b"a: " + b"b" * MAX_HEAD_BYTES, (431, "headers_too_large")),
        (GET + b"a" * MAX_HEAD_BYTES * 2, (431, "headers_too_large")),
        (b"GET /" + b"a" * MAX_TARGET_BYTES + b" HTTP/1.1\r\n\r\n", (414, "url_too_long")),
        (b"GET /" + b"a" * MAX_HEAD_BYTES, (414, "url_too_long")),
        (b"NONSENSE\r\n\r\n", (400, "invalid_http")),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", (400, "invalid_http")),
    ],
)
async def test_what_is_refused_and_how(sent: bytes, answer: tuple[int, str]) -> None:
    async with serving() as served:
        assert status_and_code(await served.say(sent)) == answer
        assert len(served.cuts) == 1


async def test_a_silent_connection_is_closed_without_a_word() -> None:
    async with serving() as served:
        assert await served.say(b"") == b""
        assert served.cuts == ["head"]


async def test_up_to_the_limits_everything_is_answered() -> None:
    filled = GET + b"".join(b"a%d: b\r\n" % i for i in range(MAX_HEADERS - 2))
    filled += b"connection: close\r\n\r\n"
    async with serving() as served:
        assert (await served.say(filled)).startswith(b"HTTP/1.1 200 OK")
        assert served.cuts == []


async def test_a_body_that_trickles_is_too_slow_and_a_steady_one_is_not() -> None:
    async def send(num: int, piece: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(
            b"POST / HTTP/1.1\r\nhost: t\r\nconnection: close\r\ncontent-length: %d\r\n\r\n"
            % (num * len(piece))
        )
        try:
            for _ in range(num):
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0.05)
        except ConnectionError:
            pass
        async with asyncio.timeout(5):
            try:
                return await reader.read()
            finally:
                writer.close()

    async with serving() as served:
        assert status_and_code(await send(15, b"x")) == (408, "request_timeout")
        assert (await send(20, b"x" * 500)).endswith(b"10000")


async def test_time_in_which_the_app_does_not_read_is_not_the_senders() -> None:
    """The second request waits in the pipeline until the first is answered."""
    async with serving() as served:
        two = (GET + b"\r\n") + GET + b"connection: close\r\n\r\n"
        assert (await served.say(two)).count(b"HTTP/1.1 200 OK") == 2


async def test_a_reader_that_stalls_is_cut_and_its_stream_ends() -> None:
    async with serving() as served:
        with socket.socket() as stalled:
            stalled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            stalled.connect(("127.0.0.1", served.port))
            stalled.sendall(b"GET /flood HTTP/1.1\r\nhost: t\r\n\r\n")
            await until(lambda: served.cuts == ["reading"])
            await until(lambda: served.streams_ended == 1)
            await until(lambda: not served.server.server_state.connections)


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /held HTTP/1.1\r\nhost: t\r\n\r\n",
        b"POST /held HTTP/1.1\r\nhost: t\r\ncontent-length: 2\r\n\r\nab",
        b"GET /held HTTP/1.1\r\nhost: t\r\n\r\n" + GET + b"\r\n",
    ],
    ids=["without a body", "with one", "with a request behind it"],
)
async def test_the_request_learns_that_its_caller_has_gone(sent: bytes) -> None:
    async with serving() as served:
        _, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(sent)
        await until(lambda: served.num_begun == 1)
        assert served.num_gone == 0
        writer.close()
        await until(lambda: served.num_gone == 1)


async def test_a_kept_connection_has_its_limit_for_the_next_head() -> None:
    async with serving() as served:
        reply = await served.say(GET + b"\r\n" + GET)
        first, second = reply.split(b"HTTP/1.1 ")[1:]
        assert first.startswith(b"200")
        assert second.startswith(b"408")


async def test_a_body_that_ends_after_its_answer_leaves_no_connection_behind() -> None:
    """The app answers 404 at once; what is left of the body comes later, and then nothing."""
    async with serving() as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(b"POST /none HTTP/1.1\r\nhost: t\r\ncontent-length: 4\r\n\r\nab")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 404")
        writer.write(b"cd")
        await until(lambda: not served.server.server_state.connections)
        writer.close()


async def test_one_connection_too_many_is_told_so() -> None:
    async with serving(max_connections=2) as served:
        held = [await asyncio.open_connection("127.0.0.1", served.port) for _ in range(2)]
        await until(lambda: len(served.server.server_state.connections) == 2)
        assert status_and_code(await served.say(b"")) == (503, "server_is_overloaded")
        for _, writer in held:
            writer.close()
        await until(lambda: not served.server.server_state.connections)
        assert (await served.say(GET + b"connection: close\r\n\r\n")).startswith(b"HTTP/1.1 200")


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not true():
            await asyncio.sleep(0.01)


async def test_one_address_has_so_many_connections_and_others_theirs() -> None:
    async with serving(per_address=2) as served:
        held = [await asyncio.open_connection("127.0.0.1", served.port) for _ in range(2)]
        reply = await served.say(GET + b"connection: close\r\n\r\n")
        assert status_and_code(reply) == (503, "server_is_overloaded")
        assert served.cuts == ["crowded"]
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", served.port, local_addr=("127.0.0.2", 0)
        )
        writer.write(GET + b"connection: close\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 200")
        writer.close()
        for _, held_writer in held:
            held_writer.close()
            await held_writer.wait_closed()


@pytest.mark.parametrize(
    "second",
    [b"host: t\r\n", b"Host: other\r\n", b"HOST:\r\n", b"host: t\r\nx: y\r\nhOsT: u\r\n"],
)
async def test_two_hosts_are_refused(second: bytes) -> None:
    async with serving() as served:
        reply = await served.say(GET + second + b"\r\n")
        assert status_and_code(reply) == (400, "invalid_http")
        assert served.cuts == ["malformed"]


@pytest.mark.parametrize(
    "host", [b"a,b", b"a b", b"a@b", b"a/b", b"a:b", b"[::1", b"a\\b", b"\xff"]
)
async def test_a_host_that_is_none_is_refused(host: bytes) -> None:
    async with serving() as served:
        reply = await served.say(b"GET / HTTP/1.1\r\nhost: " + host + b"\r\n\r\n")
        assert status_and_code(reply) == (400, "invalid_http")


@pytest.mark.parametrize(
    "host", [b"", b"t", b"a.example:8080", b"127.0.0.1:", b"[::1]:80", b"my_host", b"xn--a"]
)
async def test_each_request_of_a_connection_names_its_host(host: bytes) -> None:
    async with serving() as served:
        one = b"GET / HTTP/1.1\r\nHost: " + host + b"\r\n"
        reply = await served.say(one + b"\r\n" + one + b"connection: close\r\n\r\n")
        assert reply.count(b"HTTP/1.1 200 OK") == 2


@pytest.mark.parametrize(
    "head",
    [
        b"GET / HTTP/1.1\r\n",
        b"GET http://other/ HTTP/1.1\r\nhost: t\r\n",
        b"GET http://t@other/ HTTP/1.1\r\nhost: t\r\n",
        b"GET http://t/ HTTP/1.0\r\n",
    ],
    ids=["none", "another in the target", "a user too", "in the target alone"],
)
async def test_the_target_and_the_head_name_one_host(head: bytes) -> None:
    async with serving() as served:
        assert status_and_code(await served.say(head + b"\r\n")) == (400, "invalid_http")


async def test_a_target_may_name_the_host_and_an_old_client_none() -> None:
    async with serving() as served:
        whole = b"GET http://T/ HTTP/1.1\r\nhost: t\r\nconnection: close\r\n\r\n"
        assert (await served.say(whole)).startswith(b"HTTP/1.1 200 OK")
        assert (await served.say(b"GET / HTTP/1.0\r\n\r\n")).startswith(b"HTTP/1.1 200 OK")


NUM_REQUESTS = 3000


async def test_of_requests_in_a_row_a_few_wait_and_all_are_answered() -> None:
    async with serving() as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        one = GET + b"\r\n"
        writer.write(one * NUM_REQUESTS)
        found = b""
        async with asyncio.timeout(20):
            while found.count(b"HTTP/1.1 200 OK") < NUM_REQUESTS:
                found += await reader.read(1 << 20)
        assert served.most_waiting <= PIECE_BYTES / len(one) + 1
        writer.close()


async def test_a_body_of_many_pieces_is_parsed_in_many_turns_of_the_loop() -> None:
    async def ticking() -> None:
        while True:
            served.num_turns += 1
            await asyncio.sleep(0)

    chunks = b"1\r\na\r\n" * 20_000
    head = b"POST /turns HTTP/1.1\r\nhost: t\r\nconnection: close\r\n"
    async with serving(budget_s=1e-6) as served:
        ticks = asyncio.ensure_future(ticking())
        reply = await served.say(
            head + b"transfer-encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"
        )
        assert int(reply.rpartition(b"\r\n")[2]) >= len(chunks) / PIECE_BYTES - 1
        ticks.cancel()
