"""How to see from outside that a server is ready. Probes return False, they never raise."""

from __future__ import annotations

import asyncio
import errno
import http.client
import json
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from coserve.local.ports import free_port

_REPLY_LIMIT_S = 5.0
_BODY_LIMIT_BYTES = 65536

Probe = Callable[[], Awaitable[bool]]


@dataclass(frozen=True)
class Reply:
    """Status and body of an answer, whatever the status."""

    status: int
    body: bytes


def http_get(url: str) -> Reply | None:
    """The reply to GET `url`, or None without one."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=_REPLY_LIMIT_S)
    try:
        connection.request("GET", parts.path or "/")
        response = connection.getresponse()
        return Reply(response.status, response.read(_BODY_LIMIT_BYTES))
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def answers_200(url: str) -> Probe:
    """A probe that wants 200 from `url`."""

    async def probe() -> bool:
        reply = await asyncio.to_thread(http_get, url)
        return reply is not None and reply.status == 200

    return probe


def statusz(root_url: str | None) -> dict[str, Any]:
    """What `/statusz` of a gateway says; empty where it does not answer, or there is none."""
    reply = http_get(f"{root_url}/statusz") if root_url else None
    try:
        said = json.loads(reply.body) if reply else {}
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


def missing_parts(reply: Reply | None) -> str:
    """What a reply of /statusz says is not there, for people."""
    if reply is None:
        return "the gateway does not answer"
    try:
        parts = json.loads(reply.body)["parts"]
        missing = [f"{name}: {part['why']}" for name, part in parts.items() if not part["ok"]]
    except (ValueError, KeyError, TypeError, AttributeError):
        missing = []
    return "; ".join(missing) or f"it says {reply.status}"


def in_thread(check: Callable[[], bool]) -> Probe:
    """A probe out of a blocking check."""

    async def probe() -> bool:
        return await asyncio.to_thread(check)

    return probe


def lives_for(seconds: float) -> Probe:
    """A probe for a process with nothing to ask: ready when it has not ended for a while."""

    async def probe() -> bool:
        await asyncio.sleep(seconds)
        return True

    return probe


def why_port_unusable(host: str, port: int) -> str | None:
    """One sentence when the gateway could not listen there, else None."""
    try:
        found = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except socket.gaierror:
        return f"{host} is no address of this machine: set COSERVE_HOST to one."
    family, kind, protocol, _, address = found[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return (
                    f"Port {port} on {host} is taken: set COSERVE_PORT to a free one, "
                    f"as in `COSERVE_PORT={free_port()} make run`."
                )
            if error.errno == errno.EACCES:
                return f"Port {port} needs more rights: set COSERVE_PORT to one above 1023."
            return f"{host} is no address of this machine: set COSERVE_HOST to one."
    return None
