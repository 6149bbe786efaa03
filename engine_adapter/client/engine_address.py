"""Where an engine is: the one parser of its address, for settings, commands, routes and rows.

    http[s]://host[:port][/prefix]

An address that parses can be connected to: what makes connections reads it here too. Rows of the
database may be older than this rule, or written by hand. One that does not parse is left out and
reported, so that it never stops what the other engines serve.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from typing import Final
from urllib.parse import urlsplit

MAX_CHARS: Final = 1024
"""Postgres keeps an address as a key, which has a limit of 2,704 bytes."""

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_LABEL: Final = r"[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?"
_NAME: Final = re.compile(rf"(?=.{{1,253}}\Z){_LABEL}(?:\.{_LABEL})*\.?")
_PREFIX: Final = re.compile(r"(?:/[A-Za-z0-9._~!$&'()*+;=:@%-]+)*")


class NotAnAddress(ValueError):
    """A text is no engine's address; says why, without the text, which may hold a password."""


@dataclass(frozen=True, slots=True)
class EngineAddress:
    """An engine's address; `str` is its normal form, without a default port or a last slash.

    Attributes:
        host: A name or an IP address, an IPv6 one without brackets.
        prefix: Before every path; empty, or with a slash in front and none behind.
    """

    scheme: str
    host: str
    port: int
    prefix: str = ""

    @classmethod
    def parse(cls, text: str) -> EngineAddress:
        """Read an address.

        Raises:
            NotAnAddress: It is none.
        """
        if len(text) > MAX_CHARS:
            raise _no(f"it is longer than {MAX_CHARS} characters")
        # The library's parser drops tabs and line breaks, and takes letters of any script.
        if not text.isascii() or any(char <= " " or char == "\x7f" for char in text):
            raise _no("it has a space, a control character or a letter outside ASCII")
        if "?" in text or "#" in text:
            raise _no("it has a query or a fragment")
        try:
            parts = urlsplit(text)
            port = parts.port
        except ValueError:
            raise _no("its host or port is not valid") from None
        if parts.scheme not in _DEFAULT_PORTS:
            raise _no("it does not begin with http:// or https://")
        _, bracket, behind = parts.netloc.rpartition("]")
        if bracket and behind[:1] not in ("", ":"):
            raise _no("its host is not valid")
        if "@" in parts.netloc:
            raise _no("it has a user name or password")
        if parts.netloc.endswith(":") or port == 0:
            raise _no("its port is not one of 1 to 65535")
        prefix = parts.path.rstrip("/")
        if not _PREFIX.fullmatch(prefix):
            raise _no("its path is not valid")
        host = _host(parts.hostname or "", bracketed=parts.netloc.startswith("["))
        return cls(parts.scheme, host, port or _DEFAULT_PORTS[parts.scheme], prefix)

    @property
    def netloc(self) -> str:
        """Host and port, as the Host header says them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.netloc}{self.prefix}"


def addresses(urls: str) -> tuple[str, ...]:
    """The normal forms of a list with commas, each once, in order.

    Raises:
        NotAnAddress: One of them is none; says which, by its place.
    """
    found: dict[str, None] = {}
    for number, part in enumerate(filter(None, map(str.strip, urls.split(","))), start=1):
        try:
            found[str(EngineAddress.parse(part))] = None
        except NotAnAddress as error:
            raise NotAnAddress(f"address {number}: {error}") from None
    return tuple(found)


def why_unusable(url: str) -> str:
    """Why nothing can be sent to an address that is stored; empty where it can be."""
    try:
        EngineAddress.parse(url)
    except NotAnAddress as error:
        return str(error)
    return ""


def usable(urls: Iterable[str]) -> list[str]:
    """Of stored addresses, those that something can be sent to."""
    return [url for url in urls if not why_unusable(url)]


def shown(url: str) -> str:
    """A stored address as a log may show it: without a user name, a password or line breaks."""
    scheme, found, rest = url.partition("://")
    place = rest.rpartition("@")[2] if found else url.rpartition("@")[2]
    return ascii(f"{scheme}://{place}" if found else place)[1:-1]


def _host(host: str, *, bracketed: bool) -> str:
    try:
        if bracketed:
            if "%" in host:
                raise ValueError
            return str(IPv6Address(host))
        last = host.rstrip(".").rpartition(".")[2]
        if last.isdigit():
            return str(IPv4Address(host))
    except ValueError:
        raise _no("its host is no IP address") from None
    if not _NAME.fullmatch(host):
        raise _no("its host is not valid")
    return host


def _no(why: str) -> NotAnAddress:
    return NotAnAddress(f"{why}; http://host:port is expected")
