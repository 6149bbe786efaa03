"""Where the broker is: one server, or whichever the Sentinels of a group call its master.

    redis://:password@host:6379/0
    rediss://:password@host:6379/0                        over TLS
    redis+sentinel://:password@a:26379,b:26379/group/0    ?sentinel_password=… where they want one
    rediss+sentinel://…                                   Sentinels and servers over TLS

A certificate is checked against `COSERVE_BROKER_CA`, or against what the host trusts.
"""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final
from urllib.parse import SplitResult, parse_qs, quote, unquote, urlsplit

from redis.asyncio import ConnectionPool, Redis
from redis.asyncio.sentinel import Sentinel, SentinelConnectionPool
from redis.exceptions import OutOfMemoryError, RedisError

_SCHEMES: Final = frozenset({"redis", "rediss", "redis+sentinel", "rediss+sentinel"})
_SENTINEL_PORT: Final = 26379
_SENTINEL_PASSWORD: Final = "sentinel_password"


@dataclass(frozen=True)
class Group:
    """Sentinels, and the servers they watch.

    Attributes:
        name: What the Sentinels call the servers.
        sentinels: Host and port of each.
        server: How to log in at the server: username, password, db.
        password: The Sentinels' own; empty: they want none.
    """

    name: str
    sentinels: tuple[tuple[str, int], ...]
    server: dict[str, Any]
    password: str


class _GroupPool(SentinelConnectionPool):
    """Closes what it has to the Sentinels too; it is opened again where it is needed."""

    async def disconnect(self, inuse_connections: bool = True) -> None:
        await super().disconnect(inuse_connections)
        # Without those in use it is the pool itself, which has heard of another master.
        for one in self.sentinel_manager.sentinels if inuse_connections else ():
            await one.connection_pool.disconnect()


@dataclass(frozen=True)
class Broker:
    """An address of the broker; its certificate's authority, where it is not one of the host's."""

    url: str
    ca: str = ""

    def check(self) -> None:
        """Whether it can be an address.

        Raises:
            ValueError: It cannot; says why, without repeating it.
        """
        _ = self._group

    @property
    def _is_encrypted(self) -> bool:
        return self.url.startswith("rediss")

    @property
    def _tls(self) -> dict[str, Any]:
        if not self._is_encrypted:
            return {}
        authority = {"ssl_ca_certs": self.ca} if self.ca else {}
        return {"ssl_cert_reqs": ssl.CERT_REQUIRED, **authority}

    @cached_property
    def _group(self) -> Group | None:
        """The group of Sentinels; none for a single server."""
        split = urlsplit(self.url)
        if split.scheme not in _SCHEMES:
            raise ValueError(f"must begin with one of {', '.join(sorted(_SCHEMES))}, and ://")
        return _read_group(split) if split.scheme.endswith("+sentinel") else None

    def pool(self, **options: Any) -> ConnectionPool:
        """Connections to the server that is the master when each is made.

        Create it inside the event loop that uses it.

        Args:
            options: Of the connections to servers and Sentinels: `socket_timeout` and the like.
        """
        options |= self._tls
        if (group := self._group) is None:
            return ConnectionPool.from_url(self.url, **options)
        encrypted = {"ssl": True} if self._is_encrypted else {}
        password = {"password": group.password} if group.password else {}
        watchers = Sentinel(  # type: ignore[no-untyped-call]
            group.sentinels, sentinel_kwargs={**options, **encrypted, **password}
        )
        return _GroupPool(  # type: ignore[no-untyped-call]
            group.name, watchers, **group.server, **options, **encrypted
        )

    def client(self, **options: Any) -> Redis:
        """A client; `options` as for `pool`. Close it."""
        return Redis.from_pool(self.pool(**options))

    async def fault(self, limit_s: float) -> str:
        """Why it does not answer a ping within the limit; empty if it does."""
        client = self.client(socket_timeout=limit_s, socket_connect_timeout=limit_s)
        try:
            async with asyncio.timeout(limit_s):
                await client.ping()
        except (RedisError, OSError, TimeoutError) as error:
            return type(error).__name__
        finally:
            await client.aclose()
        return ""

    def celery(self) -> dict[str, Any]:
        """Celery's settings for it; transport options are to be merged with others."""
        tls = self._tls
        if (group := self._group) is None:
            return {"broker_url": self.url, "broker_use_ssl": tls or None, "options": {}}
        login = f"{quote(group.server['username'] or '')}:{quote(group.server['password'] or '')}@"
        urls = [
            f"sentinel://{login if group.server['password'] else ''}{host}:{port}"
            f"/{group.server['db']}"
            for host, port in group.sentinels
        ]
        encrypted = {"ssl": True, **tls} if tls else {}
        password = {"password": group.password} if group.password else {}
        return {
            "broker_url": ";".join(urls),
            "broker_use_ssl": tls or None,
            "options": {
                "master_name": group.name,
                "sentinel_kwargs": {**encrypted, **password},
            },
        }


def _read_group(split: SplitResult) -> Group:
    login, _, places = split.netloc.rpartition("@")
    username, _, password = login.partition(":")
    name, _, number = split.path.strip("/").partition("/")
    if not places or not name:
        raise ValueError("must be like redis+sentinel://:password@host:26379,host:26379/group/0")
    if number and not number.isdigit():
        raise ValueError("must end with the group's name and a number: /group/0")
    parameters = parse_qs(split.query)
    if unknown := sorted(set(parameters) - {_SENTINEL_PASSWORD}):
        raise ValueError(f"has an unknown parameter: {unknown[0]}")
    server = {
        "username": unquote(username) or None,
        "password": unquote(password) or None,
        "db": int(number or 0),
    }
    sentinels = tuple(_place(place) for place in places.split(","))
    return Group(name, sentinels, server, parameters.get(_SENTINEL_PASSWORD, [""])[0])


def _place(text: str) -> tuple[str, int]:
    """Host and port of one Sentinel."""
    try:
        split = urlsplit(f"//{text}")
        host, port = split.hostname, split.port
    except ValueError:
        host = None
    if not host:
        raise ValueError("each Sentinel must be a host, or a host and a port")
    return host, port or _SENTINEL_PORT


def why_refused(error: RedisError) -> str:
    """Why Valkey was of no use, to follow its name; without the error's own words."""
    if "max number of clients" in str(error):
        return "takes no more connections"
    return "has no memory left" if isinstance(error, OutOfMemoryError) else "cannot be reached"
