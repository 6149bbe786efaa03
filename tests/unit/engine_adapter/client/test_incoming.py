"""Streamed answers over connections of our own: read as they come, bounded, and used again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from engine_adapter.client.connections import Connection, Connections
from engine_adapter.client.incoming import MOST_WAITING_BYTES

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


async def request(reader: asyncio.StreamReader) -> None:
    await reader.readuntil(b"\r\n\r\n{}")


@asynccontextmanager
async def connected(handler: Handler) -> AsyncIterator[Connections]:
    handling: set[asyncio.Task[None] | None] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handling.add(asyncio.current_task())
        async with closing(writer):
            await handler(reader, writer)

    listening = await asyncio.start_server(handle, "127.0.0.1", 0)
    connections = Connections(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}")
    try:
        yield connections
    finally:
        connections.close()
        listening.close()
        for task in handling:
            assert task is not None
            await asyncio.wait((task,))


@asynccontextmanager
async def closing(writer: asyncio.StreamWriter) -> AsyncIterator[None]:
    try:
        yield
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def opened(connections: Connections) -> Connection:
    connection = await connections.send("/v1/chat/completions", b"{}", stream=True)
    assert connection.incoming is not None
    assert await connection.incoming.status == 200
    return connection


async def all_of(connection: Connection) -> bytes:
    found = b""
    while data := await connection.read():
        found += data
    return found


async def test_pieces_are_read_as_they_come() -> None:
    said, heard = asyncio.Event(), asyncio.Event()

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        writer.write(HEAD + chunk(b"one") + chunk(b"two"))
        await heard.wait()
        writer.write(chunk(b"three") + END)
        said.set()

    async with asyncio.timeout(30), connected(handler) as connections:
        connection = await opened(connections)
        first = await connection.read()
        assert b"onetwo".startswith(first)
        heard.set()
        assert first + await all_of(connection) == b"onetwothree"
        assert said.is_set()


async def test_a_connection_is_used_again_once_its_answer_has_ended() -> None:
    num_connections, may_end = 0, asyncio.Event()

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal num_connections
        num_connections += 1
        for _ in range(2):
            await request(reader)
            writer.write(HEAD + chunk(b"last word"))
            await may_end.wait()
            writer.write(END)

    async with asyncio.timeout(30), connected(handler) as connections:
        connection = await opened(connections)
        assert await connection.read() == b"last word"
        incoming = connection.incoming
        connections.release_at_end(connection)
        assert connection.incoming is incoming, "HTTP's end is still to come"
        may_end.set()
        while connection.incoming is not None:
            await asyncio.sleep(0)
        again = await opened(connections)
        assert again is connection
        assert await all_of(again) == b"last word"
    assert num_connections == 1


async def test_a_connection_given_back_early_is_closed() -> None:
    closed = asyncio.Event()

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        writer.write(HEAD + chunk(b"on and on"))
        assert await reader.read() == b""
        closed.set()

    async with asyncio.timeout(30), connected(handler) as connections:
        connections.release(await opened(connections))
        await closed.wait()


@pytest.mark.parametrize("sent", [HEAD + chunk(b"half"), HEAD + chunk(b"half") + b"zz\r\n"])
async def test_a_lost_answer_is_read_to_where_it_was_lost(sent: bytes) -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        writer.write(sent)
        writer.close()

    async with asyncio.timeout(30), connected(handler) as connections:
        connection = await opened(connections)
        with pytest.raises(ConnectionError):
            await all_of(connection)
        connections.release(connection)


async def test_a_server_that_closes_before_its_head() -> None:
    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await request(reader)
        writer.close()

    async with asyncio.timeout(30), connected(handler) as connections:
        with pytest.raises(ConnectionError):
            await opened(connections)


async def test_what_is_not_read_stays_with_the_sender() -> None:
    """More than all the buffers on the way together hold; once it is read, all of it comes."""
    width, num_chunks = 64 * 1024, 600
    sent = 0

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await request(reader)
        writer.write(HEAD)
        for _ in range(num_chunks):
            writer.write(chunk(b"x" * width))
            await writer.drain()
            sent += width
        writer.write(END)

    async with asyncio.timeout(60), connected(handler) as connections:
        connection = await opened(connections)
        incoming, before = connection.incoming, -1
        assert incoming is not None
        while sent > before:  # until the sender is held up
            before = sent
            await asyncio.sleep(0.2)
        assert incoming.full
        assert incoming.num_bytes < MOST_WAITING_BYTES + 1024 * 1024
        assert len(await all_of(connection)) == width * num_chunks


async def test_a_connection_with_unread_bytes_is_not_used_again() -> None:
    """It is held by what waits, and would stay silent for its next answer."""
    for num_bytes, reusable in ((10, True), (MOST_WAITING_BYTES + 1, False)):
        connection = Connection()
        connection.connection_made(Silent())
        connection.ask(b"", stream=True)
        connection.data_received(HEAD + chunk(b"x" * num_bytes) + END)
        assert connection.end() is reusable


class Silent(asyncio.Transport):
    """Takes everything and says nothing."""

    def write(self, data: object) -> None:
        pass

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        pass

    def abort(self) -> None:
        pass
