"""Which addresses a webhook may reach, so that no tenant can make us call our own network.

A name says nothing: it may resolve to a public address when it is checked and to 127.0.0.1 a
second later. So every socket is asked for just before it connects (`sender`), and the check at
creation is a courtesy that tells the mistake early.

Allowed are public unicast addresses over https, and whatever networks the operator names, over
https or http (`COSERVE_WEBHOOK_NETWORKS`).
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Final
from urllib.parse import SplitResult, urlsplit

from api.errors import InvalidRequest
from batch.webhooks.names import ReceiverNames
from engine_adapter.client.addresses import literal

MAX_URL_CHARS: Final = 2048

Network = IPv4Network | IPv6Network

_V6_UNICAST: Final = ip_network("2000::/3")
"""All that IANA has given out; mapped, translated, local and multicast addresses lie outside."""

# IANA's registries of special addresses. The standard library's tables differ between releases
# (192.0.0.192, a metadata service, is global to some), so they are only asked besides.
_NEVER: Final = tuple(
    ip_network(one)
    for one in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # carriers' NAT, and one cloud's metadata
        "127.0.0.0/8",  # loopback
        "168.63.129.16/32",  # Azure's virtual host: public by its range
        "169.254.0.0/16",  # link-local, and most clouds' metadata
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # protocol assignments, and one cloud's metadata
        "192.0.2.0/24",  # documentation
        "192.88.99.0/24",  # 6to4 relays
        "192.168.0.0/16",  # private
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/3",  # multicast, reserved, broadcast
        "2001::/23",  # Teredo and other protocol assignments
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4: an IPv4 address inside
        "3fff::/20",  # documentation
    )
)


class RefusedTarget(InvalidRequest):
    """The URL is not one that webhooks may be sent to."""

    default_code = "invalid_webhook_url"

    def __init__(self, message: str) -> None:
        super().__init__(message, param="url")


class UnresolvedTarget(RefusedTarget):
    """The host's name has no address that webhooks may be sent to: others were asked for it."""


class Unreached(InvalidRequest):
    """The receiver was called, and there was no answer."""

    default_code = "webhook_endpoint_unreachable"


def is_public(address: str) -> bool:
    """Whether an IP address is one of the public internet's hosts."""
    try:
        ip = ip_address(address)
    except ValueError:
        return False  # with a zone, fe80::1%eth0, among others
    if any(ip in network for network in _NEVER):
        return False
    return ip.is_global and (ip.version == 4 or ip in _V6_UNICAST)


@dataclass(frozen=True)
class TargetPolicy:
    """What webhooks may reach.

    Attributes:
        networks: Allowed beside the public internet, and the only ones for plain http.
    """

    networks: tuple[Network, ...] = ()

    @classmethod
    def of(cls, networks: str) -> TargetPolicy:
        """From a comma-separated setting.

        Raises:
            ValueError: A part is not a network.
        """
        parts = (part.strip() for part in networks.split(","))
        return cls(tuple(ip_network(part) for part in parts if part))

    def permits(self, address: str, *, encrypted: bool) -> bool:
        """Whether a socket may connect to this IP address."""
        if encrypted and is_public(address):
            return True
        try:
            ip = ip_address(address)
        except ValueError:
            return False
        return any(ip in network for network in self.networks)

    async def check(self, url: str, names: ReceiverNames) -> None:
        """Refuse a URL that could not be delivered to, as things are now.

        Raises:
            RefusedTarget: It is malformed, not https, or its host has another address than a
                permitted one. The same words for no address and a private one: this is no way to
                ask about names inside our network.
        """
        parts = parse_url(url, allow_http=bool(self.networks))
        host = parts.hostname or ""
        encrypted = parts.scheme == "https"
        found = await names.addresses(host, parts.port or (443 if encrypted else 80))
        if not found or not all(self.permits(one.address, encrypted=encrypted) for one in found):
            refused = RefusedTarget if literal(host) else UnresolvedTarget
            raise refused(
                "The host of the URL does not resolve to a public address. The operator can allow"
                " networks of its own with COSERVE_WEBHOOK_NETWORKS."
            )


def parse_url(url: str, *, allow_http: bool) -> SplitResult:
    """The parts of a webhook's URL.

    Raises:
        RefusedTarget: It is malformed, or of another scheme.
    """
    printable = url.isascii() and url.isprintable() and not set(url) & set(' \\"<>^`{|}')
    if not printable or len(url) > MAX_URL_CHARS:
        raise RefusedTarget(
            f"The URL must have at most {MAX_URL_CHARS} characters, all of them printable ASCII."
        )
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise RefusedTarget("The URL is malformed.") from None
    if parts.scheme != "https" and not (allow_http and parts.scheme == "http"):
        raise RefusedTarget("The URL must begin with https://.")
    if not parts.hostname or port == 0:
        raise RefusedTarget("The URL must name a host.")
    if parts.username is not None or parts.password is not None or parts.fragment:
        raise RefusedTarget("The URL may hold neither a user, nor a password, nor a fragment.")
    return parts
