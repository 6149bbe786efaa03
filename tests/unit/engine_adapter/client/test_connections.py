"""Whole answers over connections of our own, against servers that behave well and badly."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
import uvloop

from engine_adapter.client.connections import (
    KEEP_ALIVE_S,
    Connection,
    Connections,
    NotConnected,
)
from engine_adapter.client.incoming import Incoming
from tests.fakes.endless import ENDLESS, endless

PATH = "/v1/chat/completions"
HALF = b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nhalf"
WELL = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


class Server:
    """Answers each request with the next of `answers`; a None closes the connection."""

    def __init__(self, *answers: bytes | None) -> None:
        self.answers = list(answers)
        self.requests: list[bytes] = []
        self.num_connections = 0
        self.num_closed = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.num_connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                self.requests.append(head + await reader.readexactly(length))
                answer = self.answers.pop(0)
                if answer is None:
                    break
                for piece in (answer[:5], answer[5:]):
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(0)
                if self.answers and self.answers[0] is None:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.num_closed += 1
            writer.close()


@asynccontextmanager
async def connected(
    server: Server, keep_alive_s: float = KEEP_ALIVE_S
) -> AsyncIterator[Connections]:
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    connections = Connections(f"http://127.0.0.1:{port}", keep_alive_s=keep_alive_s)
    try:
        yield connections
    finally:
        connections.close()
        listening.close()


async def post(connections: Connections, path: str, body: bytes) -> tuple[int, bytes]:
    connection = await connections.send(path, body)
    try:
        return await connection.answer
    finally:
        connections.release(connection)


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not true():
            await asyncio.sleep(0.005)


async def test_one_connection_serves_one_request_after_the_other() -> None:
    server = Server(WELL, b"HTTP/1.1 400 Bad\r\nContent-Length: 3\r\n\r\nbad", WELL)
    async with connected(server) as connections:
        found = [await post(connections, PATH, b'{"n": %d}' % n) for n in range(3)]
    assert found == [(200, b"{}"), (400, b"bad"), (200, b"{}")]
    assert server.num_connections == 1
    assert server.requests[1].startswith(b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:")
    assert server.requests[1].endswith(b'\r\nContent-Length: 8\r\n\r\n{"n": 1}')


async def test_requests_at_once_have_a_connection_each() -> None:
    server = Server(*[WELL] * 8)
    async with connected(server) as connections:
        found = await asyncio.gather(*(post(connections, PATH, b"{}") for _ in range(8)))
    assert found == [(200, b"{}")] * 8
    assert server.num_connections == 8


async def test_answers_in_chunks() -> None:
    chunked = (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    )  # fmt: skip
    async with connected(Server(chunked, WELL)) as connections:
        assert await post(connections, PATH, b"{}") == (200, b"abcde")
        assert await post(connections, PATH, b"{}") == (200, b"{}")


async def test_a_server_that_closes_after_its_answer_gets_a_new_connection() -> None:
    closing = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\n1"
    server = Server(closing, WELL)
    async with connected(server) as connections:
        assert await post(connections, PATH, b"{}") == (200, b"1")
        assert await post(connections, PATH, b"{}") == (200, b"{}")
    assert server.num_connections == 2


async def test_a_connection_that_lay_idle_too_long_is_not_used_again() -> None:
    server = Server(WELL, WELL)
    async with connected(server, keep_alive_s=0.0) as connections:
        for _ in range(2):
            assert await post(connections, PATH, b"{}") == (200, b"{}")
    assert server.num_connections == 2


@pytest.mark.parametrize(
    "answers",
    [[None], [HALF, None], [b"SSH-2.0\r\n\r\n"]],
    ids=["closed at once", "closed half way", "no HTTP"],
)
async def test_a_lost_answer_is_an_error_and_the_next_call_works(
    answers: list[bytes | None],
) -> None:
    server = Server(*answers)
    async with connected(server) as connections:
        with pytest.raises(ConnectionError) as lost:
            async with asyncio.timeout(5):
                await post(connections, PATH, b"{}")
        assert not isinstance(lost.value, NotConnected)
        server.answers[:] = [WELL]
        assert await post(connections, PATH, b"{}") == (200, b"{}")


async def test_nobody_listens() -> None:
    async with connected(Server()) as connections:
        pass
    with pytest.raises(NotConnected):
        await post(connections, PATH, b"{}")


async def test_a_cancelled_call_closes_its_connection() -> None:
    silent = b""
    server = Server(silent, WELL)
    async with connected(server) as connections:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await post(connections, PATH, b"{}")
        await until(lambda: server.num_closed == 1)
        assert await post(connections, PATH, b"{}") == (200, b"{}")


def test_it_works_on_the_loop_that_workers_use() -> None:
    async def twice() -> list[tuple[int, bytes]]:
        async with connected(Server(WELL, WELL)) as connections:
            return [await post(connections, PATH, b"{}") for _ in range(2)]

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(twice()) == [(200, b"{}")] * 2


@pytest.mark.parametrize("way", ENDLESS)
async def test_an_answer_without_end_is_given_up(way: str) -> None:
    async with endless(*ENDLESS[way]) as server, asyncio.timeout(5):
        connections = Connections(server.url, max_answer_bytes=1 << 20)
        with pytest.raises(ConnectionError):
            await post(connections, PATH, b"{}")
        await server.over.wait()
        connections.close()


STREAMED = [way for way in ENDLESS if "body" not in way]


async def all_of(connection: Connection, incoming: Incoming) -> bytes:
    found = b"" if await incoming.status < 400 else b"an error"
    while data := await connection.read():
        found += data
    return found


@pytest.mark.parametrize("way", STREAMED)
async def test_a_stream_without_a_word_is_given_up(way: str) -> None:
    async with endless(*ENDLESS[way]) as server, asyncio.timeout(5):
        connections = Connections(server.url)
        connection = await connections.send(PATH, b"{}", stream=True)
        assert connection.incoming is not None
        with pytest.raises(ConnectionError):
            await all_of(connection, connection.incoming)
        await server.over.wait()
        connections.release(connection)
        connections.close()


async def test_a_stream_of_many_small_pieces_is_read_to_its_end() -> None:
    pieces = b"1;id=0123456789abcdef\r\na\r\n" * 20_000
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with connected(Server(head + pieces + b"0\r\n\r\n")) as connections:
        assert await post(connections, PATH, b"{}") == (200, b"a" * 20_000)


async def test_what_comes_on_an_idle_connection_closes_it() -> None:
    server = Server(WELL + b"HTTP/1.1 102 Processing\r\n\r\n", WELL)
    async with connected(server) as connections:
        assert await post(connections, PATH, b"{}") == (200, b"{}")
        await asyncio.sleep(0.05)
        assert await post(connections, PATH, b"{}") == (200, b"{}")
    assert server.num_connections == 2
