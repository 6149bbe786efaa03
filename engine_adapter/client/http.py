"""`EngineClient` over HTTP: the one way the service talks to a real engine.

Connections of our own for answers, whole and streamed: a general client's bookkeeping took more
than half of a dispatcher's CPU. Control requests use aiohttp.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import aiohttp
import orjson
from opentelemetry.trace import Span, SpanKind

from api.engine_errors import ENGINE_LOST
from api.errors import EngineBusy, EngineNotReached, EngineUnavailable, InternalError
from api.usage import TokenUsage
from engine_adapter.client.addresses import EngineResolver
from engine_adapter.client.base import EngineCall, EngineFacts, EngineReply, LiveRids, StreamFrame
from engine_adapter.client.connections import (
    CONNECT_TIMEOUT_S,
    KEEP_ALIVE_S,
    Connection,
    Connections,
    NotConnected,
)
from engine_adapter.client.decoding import (
    NO_ENGINE,
    decode_facts,
    decode_live,
    decode_reply,
    error_of,
    last_served,
)
from engine_adapter.client.encoding import depends_on_engine, encode
from engine_adapter.client.exchange import LAST_WORD_S, GivenUp, exchange
from engine_adapter.client.rid import is_rid
from engine_adapter.client.shared_look import SharedLook
from engine_adapter.client.sse import DONE, EventParser, EventTooLong
from service import tracing

CONTROL_TIMEOUT_S = 10.0
MAX_CONTROL_BYTES = 4 << 20
"""A control answer is parsed on the loop that all share."""
NOT_REACHED = "The engine cannot be reached."
BUSY = "The engine is busy: it answers too late, or turns requests away."
ABORT_PATIENCE_S = 2.0
_ABORT_POLL_INTERVAL_S = 0.05
GATHER_S = 0.001
"""A stream that is read twice within this time is read once in this time."""

_HEADERS = {"content-type": "application/json"}
_LOST = (aiohttp.ClientError, OSError, TimeoutError)
T = TypeVar("T")


class HttpEngineClient:
    """One engine at an HTTP address. Create it inside the event loop that uses it."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._root = url.rstrip("/")
        self._facts: EngineFacts | None = None
        self.connections = Connections(url)
        self._server_info: SharedLook[Any] = SharedLook(
            partial(self._control, "GET", "/server_info")
        )
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=0,
                keepalive_timeout=KEEP_ALIVE_S,
                use_dns_cache=False,
                resolver=EngineResolver(self.connections.addresses),
            ),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S),
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=("User-Agent", "Accept-Encoding"),
        )

    @property
    def url(self) -> str:
        """The engine's address, as it was given."""
        return self._url

    async def call(self, call: EngineCall) -> EngineReply:
        with tracing.span("engine call", SpanKind.CLIENT, self._facts_of(call)) as span:
            try:
                body = await self._encoded(call, stream=False)
                traced = tracing.traceparent(span)
                connection = await self.connections.send(call.path, body, traceparent=traced)
            except NotConnected as error:
                raise EngineNotReached(NOT_REACHED) from error
            heard = partial(_note_served, call)
            try:
                status, raw = await self._exchange(call, connection.answer, heard)
            finally:
                self.connections.release(connection)
            return decode_reply(call, status, raw)

    async def stream(self, call: EngineCall) -> HttpEngineStream:
        span = tracing.begin("engine stream", SpanKind.CLIENT, self._facts_of(call))
        try:
            return await self._stream(call, span)
        except BaseException as error:
            tracing.fail(span, error)
            span.end()
            raise

    def _facts_of(self, call: EngineCall) -> tracing.Facts:
        """What a span says of a call, if there are any."""
        if not tracing.is_on():
            return {}
        return {
            "server.address": self._url,
            "url.path": call.path,
            "coserve.class": call.request_class.name.lower(),
            "coserve.request_id": call.request_id,
            "coserve.rid": call.rid,
        }

    async def _stream(self, call: EngineCall, span: Span) -> HttpEngineStream:
        try:
            body = await self._encoded(call, stream=True)
            traced = tracing.traceparent(span)
            connection = await self.connections.send(
                call.path, body, stream=True, traceparent=traced
            )
        except NotConnected as error:
            raise EngineNotReached(NOT_REACHED) from error
        assert connection.incoming is not None
        stream = HttpEngineStream(self, call.rid, connection, span)

        async def note_served(_: int) -> None:
            with suppress(TimeoutError):
                async with asyncio.timeout(LAST_WORD_S):
                    call.served.add(await stream.last_word())

        try:
            status = await self._exchange(call, connection.incoming.status, note_served)
            if status < 400:
                return stream
            raw = await self._exchange(call, asyncio.ensure_future(stream.rest()), _nothing)
        except BaseException:
            self.connections.release(connection)
            raise
        self.connections.release(connection)
        raise error_of(call, status, raw)

    async def abort(self, rid: str) -> bool:
        """See `EngineClient.abort`.

        The engine ignores the abort of an id it has not read yet, and answers 200 all the same:
        so the abort is repeated until two looks in a row find the id gone.
        """
        if not is_rid(rid):
            raise InternalError("an engine request id has the wrong form")
        body = orjson.dumps({"rid": rid})
        absent = 0
        loop = asyncio.get_running_loop()
        until = loop.time() + ABORT_PATIENCE_S
        while loop.time() < until:
            await self._control("POST", "/abort_request", body)
            absent = absent + 1 if rid not in await self.live_rids() else 0
            if absent == 2:
                return True
            await asyncio.sleep(_ABORT_POLL_INTERVAL_S)
        return False

    async def live_rids(self) -> LiveRids:
        return decode_live(await self._server_info())

    async def facts(self) -> EngineFacts:
        info = await self._control("GET", "/server_info")
        models = await self._control("GET", "/v1/models")
        facts = decode_facts(info, models, await self._control("GET", "/model_info"))
        self._facts = facts
        return facts

    async def healthy(self) -> bool:
        try:
            await self._control("GET", "/health")
        except EngineUnavailable:
            return False
        return True

    async def close(self) -> None:
        self.connections.close()
        await self._session.close()

    async def _encoded(self, call: EngineCall, *, stream: bool) -> bytes:
        """The call's bytes for this engine; it is asked about itself if they depend on that.

        Raises:
            InvalidRequest: This engine cannot do it.
            EngineNotReached: It does not say what it can do: nothing was sent.
        """
        if not depends_on_engine(call):
            return encode(call, stream=stream)
        try:
            facts = self._facts or await self.facts()
        except EngineUnavailable as error:
            raise EngineNotReached(error.message) from error.__cause__
        return encode(call, stream=stream, facts=facts)

    async def _exchange(
        self,
        call: EngineCall,
        answer: asyncio.Future[T],
        heard: Callable[[T], Awaitable[None]],
    ) -> T:
        """An exchange whose failures are errors of ours, and which leaves no request behind."""
        try:
            return await exchange(
                answer, timeout_s=call.timeout_s, drop=partial(self._drop, call.rid), heard=heard
            )
        except GivenUp as error:
            raise EngineUnavailable(ENGINE_LOST) from error
        except _LOST as error:
            await self._drop(call.rid)
            raise EngineUnavailable(ENGINE_LOST) from error

    async def _control(self, method: str, path: str, body: bytes | None = None) -> Any:
        """One short request beside the answers; its parsed JSON, or nothing where there is none.

        Raises:
            EngineBusy: It answered too late, or that it has no room.
            EngineUnavailable: No good answer.
        """
        try:
            async with (
                asyncio.timeout(CONTROL_TIMEOUT_S),
                self._session.request(
                    method,
                    self._root + path,
                    data=body,
                    headers=_HEADERS if body else None,
                    allow_redirects=False,
                ) as response,
            ):
                if response.status in (429, 503):
                    raise EngineBusy(BUSY)
                if response.status >= 300:
                    raise EngineUnavailable("The engine does not answer its control requests.")
                raw = await _read_bounded(response)
                return orjson.loads(raw) if raw else {}
        except orjson.JSONDecodeError as error:
            raise EngineUnavailable(f"{NO_ENGINE} It does not speak JSON.") from error
        except _LOST as error:
            self.connections.addresses.ask_again()  # it may have moved
            if isinstance(error, TimeoutError) and not isinstance(
                error, aiohttp.ServerConnectionError
            ):
                raise EngineBusy(BUSY) from error
            raise EngineUnavailable(NOT_REACHED) from error

    async def _drop(self, rid: str) -> None:
        """Abort a request nobody waits for any more; an engine that is gone has dropped it."""
        try:
            await self.abort(rid)
        except EngineUnavailable:
            return


async def _read_bounded(response: aiohttp.ClientResponse) -> bytes:
    """A control answer, which is read whole and parsed at once, so it may not be long."""
    raw = bytearray()
    async for part in response.content.iter_any():
        raw += part
        if len(raw) > MAX_CONTROL_BYTES:
            raise EngineUnavailable(f"{NO_ENGINE} It answers with more than 4 MiB.")
    return bytes(raw)


class HttpEngineStream:
    """A streamed answer whose status line has arrived."""

    def __init__(
        self, client: HttpEngineClient, rid: str, connection: Connection, span: Span
    ) -> None:
        self._span = span
        self._client = client
        self._rid = rid
        self._connection = connection
        self._parser = EventParser()
        self._done = self._closed = False

    async def __aiter__(self) -> AsyncIterator[StreamFrame]:
        """Frames in order: each holds everything that had arrived."""
        read = self._connection.read
        read_at_s = -math.inf
        while not self._done:
            try:
                data = await read()
                events = self._parser.feed(data)
            except (*_LOST, EventTooLong) as error:
                raise EngineUnavailable(ENGINE_LOST) from error
            if not data:
                raise EngineUnavailable(ENGINE_LOST)
            if events and events[-1].startswith(DONE):
                events.pop()
                self._done = True
            before_s, read_at_s = read_at_s, time.monotonic()
            if events or self._done:
                yield StreamFrame(events, self._done)
            if read_at_s - before_s < GATHER_S and not self._done:
                await self._connection.rest(GATHER_S)

    async def aclose(self) -> TokenUsage | None:
        """Let go of the connection; an answer that was not read to its end is aborted."""
        if self._closed:
            return None
        self._closed = True
        self._span.end()
        connections = self._client.connections
        if self._done:
            connections.release_at_end(self._connection)
            return None
        self._done = True
        # Read on meanwhile: an engine that cannot send what it has made may not come to the abort.
        usage: TokenUsage | None = None
        try:
            async with asyncio.TaskGroup() as group:
                reading = group.create_task(self.last_word())
                await self._client._drop(self._rid)
                await asyncio.wait({reading}, timeout=LAST_WORD_S)
                usage = reading.result() if reading.done() else None
                reading.cancel()
        finally:
            connections.release(self._connection)
        return usage

    async def last_word(self) -> TokenUsage | None:
        """What the engine says it had served: SGLang ends an aborted stream with its usage."""
        usage: TokenUsage | None = None
        with suppress(*_LOST, EventTooLong):
            while data := await self._connection.read():
                usage = last_served(self._parser.feed(data)) or usage
        return usage

    async def rest(self) -> bytes:
        """All that is to come, as it is."""
        pieces = []
        while data := await self._connection.read():
            pieces.append(data)
        return b"".join(pieces)


async def _nothing(_: object) -> None:
    """What was served of a refused call is nothing."""


async def _note_served(call: EngineCall, answer: tuple[int, bytes]) -> None:
    """Note what was served of a call that was aborted; its answer is nobody's."""
    with suppress(EngineUnavailable):
        decode_reply(call, *answer)
