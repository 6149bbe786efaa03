"""One attempt: one signed POST on a connection of its own.

Nothing of the environment steers it (no proxy, no .netrc), no redirect is followed, no cookie is
kept, and of the answer only the status is read, within `MAX_ANSWER_BYTES`: there may be any number
of 1xx answers before it. Each socket is vetted with the very address it is
about to connect to, literal addresses included (`targets`).
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import aiohttp

from batch.webhooks import signature
from batch.webhooks.names import ReceiverNames, ReceiverResolver
from batch.webhooks.targets import RefusedTarget, TargetPolicy, parse_url
from service.bounded_answer import AnswerTooLong, bounded
from service.clock import Clock

TIMEOUT_S: Final = 10.0
CONNECT_TIMEOUT_S: Final = 5.0
MAX_ANSWER_BYTES: Final = 64 * 1024
USER_AGENT: Final = "coserve-webhooks/1.0"


class Failure(StrEnum):
    """Why there was no success, in a word; receivers' own words are never kept."""

    STATUS = "status"
    TIMEOUT = "timeout"
    CONNECTION = "connection"
    CERTIFICATE = "certificate"
    REFUSED_ADDRESS = "refused_address"
    BAD_ANSWER = "bad_answer"


@dataclass(frozen=True)
class Attempt:
    """What came of one POST.

    Attributes:
        status: The HTTP status, none where no answer came.
        failure: None for a 2xx.
    """

    status: int | None
    failure: Failure | None


class Sender:
    """Posts events to what the policy permits.

    Args:
        policy: What may be reached.
        clock: Dates the posts.
        names: Finds the receivers; their owner closes them.
        timeout_s: How long a post may take.
    """

    def __init__(
        self,
        policy: TargetPolicy,
        clock: Clock,
        names: ReceiverNames,
        *,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self._policy = policy
        self._names = names
        self._clock = clock
        self._timeout = aiohttp.ClientTimeout(
            total=timeout_s, sock_connect=min(timeout_s, CONNECT_TIMEOUT_S)
        )

    async def check(self, url: str) -> None:
        """Refuse a URL that could not be delivered to; see `TargetPolicy.check`.

        Raises:
            RefusedTarget: It is malformed, or its host is not permitted.
        """
        await self._policy.check(url, self._names)

    async def post(
        self, url: str, *, webhook_id: str, body: bytes, keys: Sequence[bytes]
    ) -> Attempt:
        """Post once; every failure is an outcome, none is raised."""
        try:
            parts = parse_url(url, allow_http=bool(self._policy.networks))
        except RefusedTarget:  # allowed when it was created, by settings that changed since
            return Attempt(None, Failure.REFUSED_ADDRESS)
        gate = _Gate(self._policy, encrypted=parts.scheme == "https")
        timestamp_s = int(self._clock.now().timestamp())
        headers = {
            "content-type": "application/json",
            "user-agent": USER_AGENT,
            **signature.headers(webhook_id, timestamp_s, body, keys),
        }
        try:
            async with (
                self._session(gate) as session,
                session.post(url, data=body, headers=headers, allow_redirects=False) as answer,
            ):
                status = answer.status
                # The body may be endless: the connection goes, unread.
                answer.close()
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            return Attempt(None, Failure.REFUSED_ADDRESS if gate.refused else _failure(error))
        return Attempt(status, None if 200 <= status < 300 else Failure.STATUS)

    def _session(self, gate: _Gate) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(
            force_close=True,
            use_dns_cache=False,
            resolver=ReceiverResolver(self._names),
            socket_factory=gate.open,
        )
        return aiohttp.ClientSession(
            connector=bounded(connector, MAX_ANSWER_BYTES),
            timeout=self._timeout,
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
            auto_decompress=False,
        )


class _Gate:
    """Opens sockets to permitted addresses only.

    Attributes:
        refused: Whether it refused every one.
    """

    def __init__(self, policy: TargetPolicy, *, encrypted: bool) -> None:
        self.refused = self._opened = False
        self._policy = policy
        self._encrypted = encrypted

    def open(self, address: tuple[Any, ...]) -> socket.socket:
        """A socket for (family, type, protocol, name, socket address).

        Raises:
            OSError: The address is not permitted.
        """
        family, kind, protocol, _, target = address
        if not self._policy.permits(str(target[0]), encrypted=self._encrypted):
            self.refused = not self._opened
            raise OSError("the address is not one that webhooks may reach")
        self._opened, self.refused = True, False
        return socket.socket(family, kind, protocol)


def _failure(error: Exception) -> Failure:
    if isinstance(error, TimeoutError):
        return Failure.TIMEOUT
    if isinstance(error, (aiohttp.ClientConnectorCertificateError, aiohttp.ClientSSLError)):
        return Failure.CERTIFICATE
    if isinstance(error, (aiohttp.ClientResponseError, AnswerTooLong)):
        return Failure.BAD_ANSWER
    return Failure.CONNECTION
