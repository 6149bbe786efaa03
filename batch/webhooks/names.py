"""Addresses of receivers' names, asked for apart from all other names.

Whoever registers an endpoint chooses its name server, and one that is silent costs whoever asks it
the whole wait. So receivers' names never go through the event loop's `getaddrinfo`, whose few
threads also find engines, Postgres and Valkey: c-ares asks for them on sockets of its own, with a
time of its own and a bound on how many are asked for at once.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Sequence
from ipaddress import ip_address
from typing import Final

import aiodns
import pycares
from aiohttp.abc import AbstractResolver, ResolveResult

from engine_adapter.client.addresses import Address, literal

RESOLVE_LIMIT_S: Final = 5.0
MAX_AT_ONCE: Final = 256
_TRY_S: Final = 1.0
_TRIES: Final = 3

# `127.1`, `0x7f000001`: addresses to some programs and names to others. To us they are nothing.
_ENDS_IN_NUMBER: Final = re.compile(r"(?:^|\.)(?:[0-9]+|0x[0-9a-f]*)\.?$", re.IGNORECASE)


class ReceiverNames:
    """Finds receivers. Create it inside the event loop that uses it.

    Args:
        servers: Name servers to ask, `address` or `address:port`; none: the host's own.
        limit_s: Nobody waits longer for a name, the wait for a place included.
        max_at_once: Names asked for at once; further ones wait for a place.
    """

    def __init__(
        self,
        servers: Sequence[str] = (),
        *,
        limit_s: float = RESOLVE_LIMIT_S,
        max_at_once: int = MAX_AT_ONCE,
    ) -> None:
        self._servers = tuple(servers)
        self._limit_s = limit_s
        self._places = asyncio.Semaphore(max_at_once)
        self._resolver: aiodns.DNSResolver | None = None

    async def addresses(self, host: str, port: int) -> list[Address]:
        """Every address of a host; none where it has none, or none is known in time."""
        known = literal(host)
        if known is not None:
            return [known]
        name = host.rstrip(".")
        if not name or _ENDS_IN_NUMBER.search(name):
            return []
        try:
            async with asyncio.timeout(self._limit_s), self._places:
                found = await self._asked().getaddrinfo(name, port=port, type=socket.SOCK_STREAM)
        except (aiodns.error.DNSError, UnicodeError, TimeoutError):
            return []
        return [
            Address(socket.AddressFamily(node.family), _text(node.addr[0])) for node in found.nodes
        ]

    async def close(self) -> None:
        """Give up what is being asked for."""
        if self._resolver is not None:
            await self._resolver.close()
            self._resolver = None

    def _asked(self) -> aiodns.DNSResolver:
        if self._resolver is None:
            # Names are whole: the host's search domains are ours, not the receivers'.
            self._resolver = aiodns.DNSResolver(
                nameservers=self._servers or None,
                timeout=_TRY_S,
                tries=_TRIES,
                flags=pycares.ARES_FLAG_NOSEARCH,
            )
        return self._resolver


class ReceiverResolver(AbstractResolver):
    """`ReceiverNames` as aiohttp asks for it; closing it leaves the names open."""

    def __init__(self, names: ReceiverNames) -> None:
        self._names = names

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """See aiohttp.

        Raises:
            OSError: The host has no address.
        """
        found = [
            ResolveResult(
                hostname=host, host=one.address, port=port, family=one.family, proto=0, flags=0
            )
            for one in await self._names.addresses(host, port)
            if family in (socket.AF_UNSPEC, one.family)
        ]
        if not found:
            raise OSError(None, "the receiver's name has no address")
        return found

    async def close(self) -> None:
        """Nothing is held open."""


def checked_servers(servers: str) -> tuple[str, ...]:
    """Name servers from a comma-separated setting.

    Raises:
        ValueError: A part is neither an address nor `address:port`.
    """
    parts = tuple(part.strip() for part in servers.split(",") if part.strip())
    for part in parts:
        host, colon, port = part.rpartition(":")
        with_port = bool(colon) and (host.count(":") == 0 or host.startswith("["))
        ip_address(host.strip("[]") if with_port else part)
        if with_port and not (port.isdigit() and 0 < int(port) < 65536):
            raise ValueError(f"{part!r} has no valid port")
    return parts


def _text(address: str | bytes) -> str:
    return address.decode("ascii") if isinstance(address, bytes) else address
