"""Short requests to an engine beside the answers: what it says of itself, and aborts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar

import aiohttp
import orjson

from api.errors import EngineBusy, EngineUnavailable, InvalidRequest
from api.json_shape import check_shape
from engine_adapter.client.addresses import Addresses, EngineResolver
from engine_adapter.client.connections import CONNECT_TIMEOUT_S, KEEP_ALIVE_S
from engine_adapter.client.decoding import NO_ENGINE
from service.bounded_answer import MAX_HEAD_BYTES, AnswerTooLong, bounded
from service.bulkhead import Bulkhead

CONTROL_TIMEOUT_S: Final = 10.0
MAX_CONTROL_BYTES: Final = 4 << 20
SMALL_BYTES: Final = 64 * 1024
"""An answer up to this length is read on the loop that all share; a longer one beside it."""

_READING: Final = Bulkhead("control", 1)
T = TypeVar("T")
NOT_REACHED: Final = "The engine cannot be reached."
BUSY: Final = "The engine is busy: it answers too late, or turns requests away."

ENDLESS: Final = f"{NO_ENGINE} It answers with more than 4 MiB."

_HEADERS: Final = {"content-type": "application/json"}
_LOST: Final = (aiohttp.ClientError, OSError, TimeoutError)
_NO_ROUTE: Final = 404
_WANTS_A_KEY: Final = (401, 403)
WANTS_A_KEY: Final = "The engine wants another API key: give it in COSERVE_ENGINE_KEYS."


class ControlRequests:
    """To one engine. Create it inside the event loop that uses it.

    Every method raises `EngineBusy` where it answers too late or has no room, and
    `EngineUnavailable` where it gives no good answer.
    """

    def __init__(self, url: str, addresses: Addresses, key: str = "") -> None:
        self._root = url.rstrip("/")
        self._key = {"authorization": f"Bearer {key}"} if key else {}
        self._addresses = addresses
        self._session = aiohttp.ClientSession(
            connector=bounded(
                aiohttp.TCPConnector(
                    limit=0,
                    keepalive_timeout=KEEP_ALIVE_S,
                    use_dns_cache=False,
                    resolver=EngineResolver(addresses),
                ),
                MAX_CONTROL_BYTES + MAX_HEAD_BYTES,
            ),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S),
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=("User-Agent", "Accept-Encoding"),
        )

    async def get(self, path: str) -> Any:
        """The parsed JSON of a route, or an empty object where there is none."""
        return await _parsed(*await self._ask("GET", path))

    async def post(self, path: str, body: bytes) -> Any:
        """The same of a route that is told something."""
        return await _parsed(*await self._ask("POST", path, body))

    async def told(self, path: str) -> Any:
        """What a route says that only some servers have; none where it is not there."""
        status, raw = await self._ask("GET", path)
        return None if status == _NO_ROUTE else await _parsed(status, raw)

    async def text(self, path: str) -> str:
        """The text of a route that only some servers have; empty where it is not there."""
        status, raw = await self._ask("GET", path)
        return raw.decode("utf-8", "replace") if status < 300 else ""

    async def has(self, path: str) -> bool:
        """Whether a route is there; one for POST alone says so."""
        status, _ = await self._ask("GET", path)
        return status != _NO_ROUTE

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()

    async def _ask(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        try:
            async with (
                asyncio.timeout(CONTROL_TIMEOUT_S),
                self._session.request(
                    method,
                    self._root + path,
                    data=body,
                    headers={**self._key, **(_HEADERS if body else {})},
                    allow_redirects=False,
                ) as response,
            ):
                if response.status in (429, 503):
                    raise EngineBusy(BUSY)
                return response.status, await _read_bounded(response)
        except AnswerTooLong as error:
            raise EngineUnavailable(ENDLESS) from error
        except _LOST as error:
            self._addresses.ask_again()  # it may have moved
            if isinstance(error, TimeoutError) and not isinstance(
                error, aiohttp.ServerConnectionError
            ):
                raise EngineBusy(BUSY) from error
            raise EngineUnavailable(NOT_REACHED) from error


async def read(length: int, reader: Callable[[], T]) -> T:
    """What is read of an answer of this length: beside the loop if that may take long."""
    return await _READING.run(reader) if length > SMALL_BYTES else reader()


async def _parsed(status: int, raw: bytes) -> Any:
    if status in _WANTS_A_KEY:
        raise EngineUnavailable(WANTS_A_KEY)
    if status >= 300:
        raise EngineUnavailable("The engine does not answer its control requests.")
    try:
        return await read(len(raw), partial(_loaded, raw)) if raw else {}
    except InvalidRequest as error:
        raise EngineUnavailable(f"{NO_ENGINE} It answers with too complex JSON.") from error
    except orjson.JSONDecodeError as error:
        raise EngineUnavailable(f"{NO_ENGINE} It does not speak JSON.") from error


def _loaded(raw: bytes) -> Any:
    check_shape(raw)
    return orjson.loads(raw)


async def _read_bounded(response: aiohttp.ClientResponse) -> bytes:
    """A control answer, which is read whole and parsed at once, so it may not be long."""
    raw = bytearray()
    async for part in response.content.iter_any():
        raw += part
        if len(raw) > MAX_CONTROL_BYTES:
            raise EngineUnavailable(ENDLESS)
    return bytes(raw)
