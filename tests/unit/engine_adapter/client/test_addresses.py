"""An engine's name is asked for once; after that no call waits for a name server."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine

import pytest

from api.errors import EngineUnavailable
from engine_adapter.client.addresses import MAX_AT_ONCE, Addresses
from engine_adapter.client.connections import Connections, NotConnected
from engine_adapter.client.http import HttpEngineClient
from tests.fixtures.loops import NamingLoop

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"


def on_naming_loop(story: Callable[[NamingLoop], Coroutine[object, object, None]]) -> None:
    loop = NamingLoop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(story(loop))


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Each answer on a connection of its own."""
    await reader.readuntil(b"\r\n\r\n")
    writer.write(ANSWER)
    writer.close()
    await writer.wait_closed()


def test_later_connections_need_no_name_server() -> None:
    async def story(loop: NamingLoop) -> None:
        server = await asyncio.start_server(_serve, "127.0.0.1", 0)
        client = HttpEngineClient(f"http://localhost:{server.sockets[0].getsockname()[1]}")
        loop.asked.clear()
        for _ in range(4):
            connection = await client.connections.send("/x", b"")
            assert (await connection.answer)[0] == 200
            client.connections.release(connection)
            assert await client.healthy()
            loop.silent = True
        assert loop.asked == ["localhost"]
        await client.close()
        server.close()
        await server.wait_closed()
        await asyncio.sleep(0)

    on_naming_loop(story)


async def test_a_name_without_an_address_is_an_engine_that_is_not_reached() -> None:
    client = HttpEngineClient("http://" + "a" * 70 + ".invalid:1")
    with pytest.raises(EngineUnavailable):
        await client.live_rids()
    with pytest.raises(NotConnected):
        await client.connections.send("/x", b"")
    await client.close()


async def test_every_address_is_tried() -> None:
    server = await asyncio.start_server(_serve, "127.0.0.1", 0)
    connections = Connections(f"http://localhost:{server.sockets[0].getsockname()[1]}")
    known = await connections.addresses.get()
    connection = await connections.send("/x", b"")  # ::1, where it is first, refuses
    assert "127.0.0.1" in {one.address for one in known}
    assert (await connection.answer)[0] == 200
    connections.release(connection)
    connections.close()
    server.close()
    await server.wait_closed()


def test_what_is_old_is_asked_for_beside() -> None:
    async def story(loop: NamingLoop) -> None:
        addresses = Addresses("localhost", fresh_s=0.0)
        first = await addresses.get()
        loop.silent = True
        assert await addresses.get() == first
        await asyncio.sleep(0)
        assert loop.asked == ["localhost"] * 2, "asked again, and nobody waited"
        assert await addresses.get() == first
        addresses.close()

    on_naming_loop(story)


def test_an_address_needs_no_name_server() -> None:
    async def story(loop: NamingLoop) -> None:
        for host, family in (("127.0.0.1", socket.AF_INET), ("::1", socket.AF_INET6)):
            addresses = Addresses(host, fresh_s=0.0)
            addresses.ask_again()
            (known,) = await addresses.get()
            assert (known.family, known.address) == (family, host)
        assert loop.asked == []

    on_naming_loop(story)


def test_silent_name_servers_of_many_engines_leave_threads_to_others() -> None:
    async def story(loop: NamingLoop) -> None:
        loop.silent = True
        engines = [Addresses(f"engine-{number}") for number in range(9)]
        for engine in engines:
            engine.ask_again()
        await asyncio.sleep(0.01)
        assert len(loop.asked) == MAX_AT_ONCE
        for engine in engines[:3]:
            engine.close()
        await asyncio.sleep(0.01)
        assert len(loop.asked) == MAX_AT_ONCE, "who gives up frees no thread"
        loop.silent = False
        loop.end_silence()
        async with asyncio.timeout(20):
            while len(loop.asked) < len(engines) - 1:
                await asyncio.sleep(0.01)
        assert set(loop.asked[MAX_AT_ONCE:]) == {f"engine-{number}" for number in range(3, 9)}

    on_naming_loop(story)
