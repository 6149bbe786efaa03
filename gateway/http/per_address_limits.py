"""Those we do not know, by the address they come from: how much of us one of them may take.

Behind a proxy every connection comes from the proxy, which says for whom it asks. It is believed
only if its own address lies in the trusted networks; else anybody could name any address, and so
escape what is counted or put it on others. A proxy's connections are not counted, since they are
many clients'. Of the others, an address may have as many as there are free (`FairRoom` does the
same for engine calls): a few addresses cannot take them all. Requests without a known key are
counted, under the address that the proxy names, whatever network that is in, or else under the
sender's own: also where sender or client is on this host.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Final

from api.errors import RateLimited
from gateway.limits.buckets import Charge, MemoryBuckets, cost_us, wait_us

LOOPBACK: Final = "127.0.0.0/8,::1/128"
FLOOR: Final = 16
"""Connections that an address may have however few are free."""

REFUSAL_S: Final = 1.0

_V6_PREFIX: Final = 64
"""What one customer of a provider has: its addresses are one stranger's."""


@dataclass(frozen=True)
class TrustedProxies:
    """Whose word about their clients is taken."""

    networks: tuple[IPv4Network | IPv6Network, ...] = ()

    @classmethod
    def of(cls, networks: str) -> TrustedProxies:
        """From a comma-separated setting.

        Raises:
            ValueError: A part is not a network, or one that everybody is in.
        """
        parts = (part.strip() for part in networks.split(","))
        found = tuple(ip_network(part) for part in parts if part)
        for network in found:
            if network.prefixlen == 0:
                raise ValueError(f"{network} would let anybody name any address")
        return cls(found)

    def __contains__(self, address: str) -> bool:
        try:
            ip = ip_address(address)
        except ValueError:
            return False
        return any(ip in network for network in self.networks)


def stranger_of(address: str) -> str:
    """Under which name an address is counted."""
    try:
        ip = ip_address(address)
    except ValueError:
        return address
    if ip.version == 4:
        return address
    if ip.ipv4_mapped is not None:
        return str(ip.ipv4_mapped)
    return str(ip_network((ip, _V6_PREFIX), strict=False))


@dataclass
class ConnectionCount:
    """Open connections per stranger.

    Invariant: the counts are those of connections that were `opened` and not `closed` yet.
    """

    most: int
    trusted: TrustedProxies = field(default_factory=TrustedProxies)
    _open: dict[str, int] = field(default_factory=dict)

    def opened(self, address: str, num_free: int) -> bool:
        """Count a connection; whether its address may have it beside those of others."""
        if address in self.trusted:
            return True
        stranger = stranger_of(address)
        number = self._open[stranger] = self._open.get(stranger, 0) + 1
        return number <= min(self.most, max(FLOOR, num_free))

    def closed(self, address: str) -> None:
        """Forget a connection that was counted."""
        stranger = stranger_of(address)
        number = self._open.get(stranger, 0) - 1
        if number > 0:
            self._open[stranger] = number
        else:
            self._open.pop(stranger, None)


class UnknownKeyLimiter:
    """Requests without a key that we know, per stranger: a bucket of one minute's worth each.

    Who has none left waits for the refusal: as fast as it can be made, refusals to one who never
    pauses would be most of what the event loop does.

    Args:
        per_minute: How many one may make.
        refusal_s: How long a refusal takes.
    """

    def __init__(self, per_minute: int, *, refusal_s: float = REFUSAL_S) -> None:
        self._cost_us = cost_us(1, per_minute)
        self._refusal_s = refusal_s
        self._buckets = MemoryBuckets()

    async def count(self, address: str | None) -> None:
        """Count a request whose key has to be looked up first.

        Raises:
            RateLimited: There were too many from this address.
        """
        if address is None:
            return
        taken = await self._buckets.take([Charge(stranger_of(address), self._cost_us)])
        if not taken.allowed:
            wait_s = -(-wait_us(taken.backlogs_us[0], self._cost_us) // 1_000_000)
            await asyncio.sleep(self._refusal_s)
            raise RateLimited(
                "Too many requests without a known API key came from your address.",
                headers={"retry-after": str(max(1, wait_s))},
            )

    async def forgive(self, address: str | None) -> None:
        """The key was a good one: the request does not count."""
        if address is not None:
            await self._buckets.settle([Charge(stranger_of(address), -self._cost_us)])
