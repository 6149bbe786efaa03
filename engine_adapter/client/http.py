"""`EngineClient` over HTTP: the one way the service talks to a real engine.

Connections of our own for answers, whole and streamed: a general client's bookkeeping took more
than half of a dispatcher's CPU. Control requests use aiohttp (`control`).

An engine that is not ours is told apart by what it says of itself (`foreign_facts`), and spoken to
in its own dialect (`dialects`). It has no list of live ids and is not asked to abort: a request is
dropped by closing its connection, and the live ids are those of this client.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar

import aiohttp
import orjson
from opentelemetry.trace import Span, SpanKind

from api.engine_errors import ENGINE_LOST, aborted
from api.errors import EngineNotReached, EngineUnavailable, InternalError
from api.usage import TokenUsage
from engine_adapter.client.base import (
    EngineCall,
    EngineFacts,
    EngineReply,
    LiveRids,
    StreamFrame,
)
from engine_adapter.client.connections import (
    Connection,
    Connections,
    NotConnected,
)
from engine_adapter.client.control import MAX_CONTROL_BYTES, NOT_REACHED, ControlRequests, read
from engine_adapter.client.decoding import (
    decode_facts,
    decode_live,
    decode_reply,
    error_of,
    error_reply,
    last_served,
)
from engine_adapter.client.dialects import DIALECTS
from engine_adapter.client.encoding import encode
from engine_adapter.client.engine_address import EngineAddress
from engine_adapter.client.engine_facts import OTHER, VLLM
from engine_adapter.client.exchange import LAST_WORD_S, GivenUp, exchange
from engine_adapter.client.foreign_facts import (
    ForeignTerms,
    foreign_facts,
    kind_of,
    queue_of,
)
from engine_adapter.client.long_answers import BRIEF_BYTES, aside
from engine_adapter.client.rid import is_rid
from engine_adapter.client.sse import DONE, EventParser, EventTooLong
from engine_adapter.scheduling.policies.settings import LEVEL_KNOB, PROFILE_KNOB, Level
from service import tracing
from service.asking import asking
from service.bulkhead import Bulkhead
from service.loop_turns import REQUEST, LoopTurns
from service.shared_poll import SharedPoll

ABORT_PATIENCE_S = 2.0
_ABORT_POLL_INTERVAL_S = 0.05
ABORTS_AT_ONCE: Final = 8
"""Many clients may go in one moment: their aborts share a few connections that are kept."""

GATHER_S = 0.001
"""A stream that is read twice within this time is read once in this time."""

_ENCODING = Bulkhead("encoding", 1)
"""More threads would only queue for the interpreter's lock, and the event loop with them."""

FOREIGN = ForeignTerms()
_LOST = (aiohttp.ClientError, OSError, TimeoutError)
T = TypeVar("T")


class HttpEngineClient:
    """One engine at an HTTP address. Create it inside the event loop that uses it.

    Args:
        url: Where it is.
        terms: What is known of engines that are not ours.
        turns: When what has come from it goes on; none: at once.
    """

    def __init__(
        self, url: str, terms: ForeignTerms = FOREIGN, turns: LoopTurns | None = None
    ) -> None:
        self._url = url
        self._root = url.rstrip("/")
        self._terms = terms
        self._turns = turns
        self._facts: EngineFacts | None = None
        # Calls under way at an engine that is not ours, which are dropped by closing these.
        self._open: dict[str, Connection] = {}
        self._aborted: set[str] = set()
        self._aborts = asyncio.Semaphore(ABORTS_AT_ONCE)
        key = terms.keys.get(str(EngineAddress.parse(url)), "")
        self.connections = Connections(url, key)
        self._control = ControlRequests(url, self.connections.addresses, key)
        self._server_info: SharedPoll[Any] = SharedPoll(partial(self._control.get, "/server_info"))

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
            self._note_open(call.rid, connection)
            try:
                status, raw = await self._exchange(call, connection.answer, heard)
            except EngineUnavailable:
                if call.rid not in self._aborted:
                    raise
                return error_reply(call, aborted())
            finally:
                self._note_end(call.rid)
                self.connections.release(connection)
            try:
                await self._turn(REQUEST)
            finally:
                # What it has used counts in any case.
                reply = await _decoded(call, status, raw)
            return reply

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
        self._note_open(call.rid, connection)
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
            self._let_go(call.rid, connection)
            raise
        self._let_go(call.rid, connection)
        raise await aside(partial(error_of, call, status, raw), is_long=call.is_large)

    async def abort(self, rid: str) -> bool:
        """See `EngineClient.abort`.

        The engine ignores the abort of an id it has not read yet, and answers 200 all the same:
        so the abort is repeated until two looks in a row find the id gone.
        """
        if not is_rid(rid):
            raise InternalError("an engine request id has the wrong form")
        if self._is_foreign:
            if rid in self._open:
                self._aborted.add(rid)
            await self._close_foreign(rid)
            return True
        body = orjson.dumps({"rid": rid})
        absent = 0
        loop = asyncio.get_running_loop()
        until = loop.time() + ABORT_PATIENCE_S
        while loop.time() < until:
            async with self._aborts:
                await self._turn(REQUEST)
                await self._control.post("/abort_request", body)
            absent = absent + 1 if rid not in await self.live_rids() else 0
            if absent == 2:
                return True
            await asyncio.sleep(_ABORT_POLL_INTERVAL_S)
        return False

    async def live_rids(self) -> LiveRids:
        """See `EngineClient.live_rids`; of an engine that is not ours, those of this client."""
        if self._is_foreign:
            queue = await self._foreign_queue()
            return LiveRids(running=frozenset(self._open), queue=queue[0] if queue else None)
        return decode_live(await self._server_info())

    async def facts(self) -> EngineFacts:
        info = await self._control.told("/server_info")
        models = await self._control.get("/v1/models")
        if self._may_be_ours(info, models):
            model_info = await self._control.get("/model_info")
            facts = decode_facts({} if info is None else info, models, model_info)
            if facts.level == 0:  # its scheduler is SGLang's, which has no targets
                facts = replace(facts, targets_s=(self._terms.ttft_s, self._terms.tbt_s))
        else:
            facts = await foreign_facts(self._control, info, models, self._terms)
        self._facts = facts
        return facts

    def _may_be_ours(self, info: Any, models: Any) -> bool:
        """Whether it is one of ours, or looks like one that has lost its plugin."""
        kind = kind_of(info, models)
        if kind == VLLM or (kind == OTHER and info is None):
            return False
        if self._url not in self._terms.urls:
            return True
        return info is not None and decode_facts(info, models, None).plugin_is_live

    async def healthy(self) -> bool:
        try:
            await self._control.get("/health")
        except EngineUnavailable:
            return False
        return True

    async def set_level(self, level: Level) -> bool:
        return await self._set_knob(LEVEL_KNOB, list(Level).index(level))

    async def profile_anew(self) -> bool:
        return await self._set_knob(PROFILE_KNOB, 1)

    async def _set_knob(self, knob: str, value: int) -> bool:
        """Set a knob of all schedulers of the engine; whether each of them took it."""
        body = orjson.dumps({"server_args": {knob: value}})
        took = await self._control.post("/set_internal_state", body)
        return isinstance(took, list) and bool(took) and all(one is True for one in took)

    async def close(self) -> None:
        self.connections.close()
        await self._control.close()

    async def _encoded(self, call: EngineCall, *, stream: bool) -> bytes:
        """The call's bytes for this engine.

        Raises:
            InvalidRequest: This engine cannot do it.
            EngineNotReached: It does not say what it can do: nothing was sent.
        """
        facts = await self._facts_for(call)
        if call.is_large:
            return await _ENCODING.run(encode, call, stream=stream, facts=facts)
        return encode(call, stream=stream, facts=facts)

    async def _facts_for(self, call: EngineCall) -> EngineFacts | None:
        """What is known of the engine that a call goes to; it is asked if that is nothing yet.

        Raises:
            EngineNotReached: It does not answer: nothing was sent.
        """
        try:
            return self._facts or await self.facts()
        except EngineUnavailable as error:
            raise EngineNotReached(error.message) from error.__cause__

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

    async def _turn(self, num_steps: int) -> None:
        """Wait for the turn of the event loop in which a piece of work begins."""
        turns = self._turns
        if turns is not None and not turns.take(num_steps):
            await turns.wait(asking(), num_steps)

    @property
    def _is_foreign(self) -> bool:
        return self._facts is not None and self._facts.foreign

    def _note_open(self, rid: str, connection: Connection) -> None:
        if self._is_foreign:
            self._open[rid] = connection

    def _note_end(self, rid: str) -> None:
        self._open.pop(rid, None)
        self._aborted.discard(rid)

    def _let_go(self, rid: str, connection: Connection) -> None:
        self._note_end(rid)
        self.connections.release(connection)

    async def _close_foreign(self, rid: str) -> None:
        """Close the connection, and say the id where that is heard: SGLang notices late."""
        connection = self._open.get(rid)
        if connection is None:
            return
        assert self._facts is not None
        if DIALECTS[self._facts.server].aborts:
            with suppress(EngineUnavailable):
                await self._control.post("/abort_request", orjson.dumps({"rid": rid}))
        if self._open.pop(rid, None) is not None:
            connection.close()

    async def _foreign_queue(self) -> tuple[int, int] | None:
        """Requests that wait and that run there, if it counts them.

        Raises:
            EngineUnavailable: It does not answer.
        """
        assert self._facts is not None
        names = DIALECTS[self._facts.server].metrics
        if names is None or self._facts.queue is None:
            await self._control.get("/v1/models")
            return None
        text = await self._control.text("/metrics")
        return await read(len(text), partial(queue_of, text, names))

    async def _drop(self, rid: str) -> None:
        """Abort a request nobody waits for any more; an engine that is gone has dropped it."""
        with suppress(EngineUnavailable):
            await (self._close_foreign(rid) if self._is_foreign else self.abort(rid))


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
        read, turn = self._connection.read, self._client._turn
        read_at_s = -math.inf
        while not self._done:
            try:
                data = await read()
                await turn(1)
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
            self._client._note_end(self._rid)
            connections.release_at_end(self._connection)
            return None
        self._done = True
        if self._client._is_foreign:
            # Closing the connection is the abort, and no last word follows.
            await self._client._drop(self._rid)
            self._client._let_go(self._rid, self._connection)
            return None
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
                await self._client._turn(1)
                usage = last_served(self._parser.feed(data)) or usage
        return usage

    async def rest(self) -> bytes:
        """What an answer says that is no stream; of one that does not end, its beginning."""
        pieces, num_bytes = [], 0
        while num_bytes < MAX_CONTROL_BYTES and (data := await self._connection.read()):
            pieces.append(data)
            num_bytes += len(data)
        return b"".join(pieces)


async def _nothing(_: object) -> None:
    """What was served of a refused call is nothing."""


async def _note_served(call: EngineCall, answer: tuple[int, bytes]) -> None:
    """Note what was served of a call that was aborted; its answer is nobody's."""
    with suppress(EngineUnavailable):
        await _decoded(call, *answer)


async def _decoded(call: EngineCall, status: int, raw: bytes) -> EngineReply:
    is_long = call.is_large or len(raw) > BRIEF_BYTES
    return await aside(partial(decode_reply, call, status, raw), is_long=is_long)
