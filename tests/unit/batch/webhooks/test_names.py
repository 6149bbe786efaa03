"""Receivers' names are asked for apart from all others, for a time of their own."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from batch.webhooks.names import ReceiverNames, checked_servers
from batch.webhooks.sender import Sender
from batch.webhooks.targets import RefusedTarget, TargetPolicy, UnresolvedTarget
from service.clock import SystemClock
from tests.fixtures.loops import NamingLoop

NUM_ENDPOINTS = 8


@contextmanager
def silent_server() -> Iterator[tuple[str, socket.socket]]:
    """A name server that hears everything and says nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as heard:
        heard.bind(("127.0.0.1", 0))
        heard.settimeout(30)
        yield f"127.0.0.1:{heard.getsockname()[1]}", heard


def test_a_silent_name_server_holds_up_no_other_name() -> None:
    async def story(loop: NamingLoop, address: str, heard: socket.socket) -> None:
        names = ReceiverNames([address])
        sender = Sender(TargetPolicy(), SystemClock(), names)
        async with asyncio.TaskGroup() as group:
            checks = [
                group.create_task(_refused(sender, f"https://hook{n}.example/"))
                for n in range(NUM_ENDPOINTS)
            ]
            await loop.run_in_executor(None, heard.recv, 512)  # it was asked, and is silent
            assert await loop.getaddrinfo("localhost", 80)
            assert loop.asked == ["localhost"], "the loop knows nothing of receivers"
            assert not any(check.done() for check in checks)
            await names.close()  # nobody needs to wait for the rest

    with silent_server() as (address, heard):
        loop = NamingLoop()
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(story(loop, address, heard))


async def _refused(sender: Sender, url: str) -> None:
    with pytest.raises(UnresolvedTarget):
        await sender.check(url)


async def test_nobody_waits_longer_than_the_limit() -> None:
    with silent_server() as (address, _):
        names = ReceiverNames([address], limit_s=0.05, max_at_once=1)
        found = await asyncio.gather(*(names.addresses(f"{n}.example", 443) for n in range(3)))
        assert found == [[], [], []]
        with pytest.raises(UnresolvedTarget):
            await TargetPolicy().check("https://hook.example/", names)
        await names.close()


@pytest.mark.parametrize("host", ["127.1", "2130706433", "0x7f000001", "0", "10.0.0.1.", "a.0x1."])
async def test_numbers_that_are_no_addresses_are_nobodys_names(host: str) -> None:
    with silent_server() as (address, heard):
        names = ReceiverNames([address])
        heard.setblocking(False)
        assert await names.addresses(host, 443) == []
        with pytest.raises(BlockingIOError):
            heard.recv(512)
        await names.close()


@pytest.mark.parametrize("host", ["localhost", "localhost.", "127.0.0.1", "::1"])
async def test_localhost_and_addresses_need_no_server(host: str) -> None:
    names = ReceiverNames(["127.0.0.1:1"])
    found = {one.address for one in await names.addresses(host, 80)}
    assert found
    assert found <= {"127.0.0.1", "::1"}
    with pytest.raises(RefusedTarget):
        await TargetPolicy().check(f"https://{f'[{host}]' if ':' in host else host}/", names)
    await names.close()


@pytest.mark.parametrize(
    ("servers", "number"),
    [
        ("", 0),
        ("10.0.0.2", 1),
        ("10.0.0.2:53, 10.0.0.3", 2),
        ("fd00::2", 1),
        ("[fd00::2]:5353,", 1),
    ],
)
def test_servers_of_a_setting(servers: str, number: int) -> None:
    assert len(checked_servers(servers)) == number


@pytest.mark.parametrize("bad", ["ns.example", "10.0.0.2:0", "10.0.0.2:99999", "10.0.0.2:x", ":53"])
def test_servers_that_are_none(bad: str) -> None:
    with pytest.raises(ValueError, match=r"does not appear|no valid port"):
        checked_servers(bad)
