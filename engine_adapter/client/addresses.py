"""Where an engine is: its name's addresses, remembered, so that no call waits for a name server.

    first call ── asks, and waits
    later ones ── what is known; older than `FRESH_S`: a new question beside it
    a connection that failed ── a new question beside it

The question goes through the event loop's `getaddrinfo`, whose few threads find Postgres and Valkey
too. A name server that is silent holds a thread for longer than any caller waits, so all engines
together ask `MAX_AT_ONCE` questions at once, and a question that is given up counts until its end.
"""

from __future__ import annotations

import asyncio
import math
import socket
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final
from weakref import WeakKeyDictionary

from aiohttp.abc import AbstractResolver, ResolveResult

FRESH_S: Final = 30.0
MAX_AT_ONCE: Final = 2
"""uvloop has four threads for names."""

_PLACES: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore]] = (
    WeakKeyDictionary()
)


@dataclass(frozen=True)
class Address:
    """One address of a host."""

    family: socket.AddressFamily
    address: str


def literal(host: str) -> Address | None:
    """The address that a host is by itself, without any name server."""
    try:
        version = ip_address(host).version
    except ValueError:
        return None
    return Address(socket.AF_INET if version == 4 else socket.AF_INET6, host)


class Addresses:
    """The addresses of one host. Create it inside the event loop that uses it."""

    def __init__(self, host: str, *, fresh_s: float = FRESH_S) -> None:
        self._host = host
        self._fresh_s = fresh_s
        self._known: tuple[Address, ...] = ()
        self._asked_at_s = -math.inf
        self._asking: asyncio.Task[None] | None = None
        self._has_place = False
        if (known := literal(host)) is not None:
            self._known = (known,)
            self._asked_at_s = math.inf

    async def get(self) -> tuple[Address, ...]:
        """What is known; asked for and waited for where nothing is.

        Raises:
            OSError: The name has no address, or the name server said nothing.
        """
        if asyncio.get_running_loop().time() - self._asked_at_s > self._fresh_s:
            self.ask_again()
        if not self._known and self._asking is not None:
            await asyncio.shield(self._asking)
        if not self._known:
            raise OSError(None, f"the name {self._host} has no address")
        return self._known

    def ask_again(self) -> None:
        """Ask beside what goes on, unless that is being done; what is known stays until then."""
        if self._asked_at_s == math.inf or (self._asking and not self._asking.done()):
            return
        self._asking = asyncio.ensure_future(self._ask())

    def close(self) -> None:
        """Give up a question, unless it is asked already: it holds its thread to its end."""
        if self._asking is not None and not self._has_place:
            self._asking.cancel()

    async def _ask(self) -> None:
        loop = asyncio.get_running_loop()
        async with _PLACES.setdefault(loop, asyncio.Semaphore(MAX_AT_ONCE)):
            self._has_place = True
            try:
                found = await loop.getaddrinfo(self._host, None, type=socket.SOCK_STREAM)
            except (OSError, UnicodeError):
                return  # an answer that fails takes away nothing
            finally:
                self._has_place = False
        self._asked_at_s = loop.time()
        self._known = tuple(Address(family, str(at[0])) for family, _, _, _, at in found)


class EngineResolver(AbstractResolver):
    """`Addresses` as aiohttp asks for them; for sessions that talk to one host alone."""

    def __init__(self, addresses: Addresses) -> None:
        self._addresses = addresses

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        return [
            ResolveResult(
                hostname=host, host=one.address, port=port, family=one.family, proto=0, flags=0
            )
            for one in await self._addresses.get()
            if family in (socket.AF_UNSPEC, one.family)
        ]

    async def close(self) -> None:
        """Nothing is held open."""
