"""Streamed answers: engine events to conforming events, while the caller listens.

One pump per choice reads its engine call and sends what it becomes. Every send holds whole events
and everything that had arrived, so pumps may take turns in any order. `send` waits while the
caller reads slowly, and then the engine's connection is not read either: memory stays bounded.

The response begins with the engine's first event; before it an error is an ordinary error
response (row S-15), after it an error event (S-16), which nothing follows (S-17). If the
engine is silent for `keep_alive_s`, the response begins with a comment (S-18).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from api.chunks import KEEP_ALIVE, StreamFailed
from api.engine_errors import ENGINE_LOST, aborted
from api.errors import ApiError, EngineUnavailable
from api.usage import TokenUsage
from engine_adapter.client.base import EngineClient
from engine_adapter.client.pool import EnginePool
from engine_adapter.client.request_class import class_label
from engine_adapter.client.shortening import streamed
from gateway.auth.keys import KeyRing
from gateway.auth.principal import Principal
from gateway.http.disconnect import ClientGone, when_gone_of, while_connected
from gateway.http.error_handlers import error_response
from gateway.observability.latency_metrics import targets_of
from gateway.observability.metrics import Metrics
from gateway.prompts.admission import Admission, Admitted, Choice
from gateway.prompts.bill import Bill
from gateway.prompts.failover import Failover
from gateway.prompts.stream_form import StreamForm, StreamWriter

_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


class StreamedReply(Response):
    """The response to one streamed request.

    Invariants: `_started` is set before the first byte leaves; the bill is settled exactly once,
    however the stream ends; every engine call has ended or was aborted when the response ends.
    """

    def __init__(  # noqa: PLR0913
        self,
        admitted: Admitted,
        form: StreamForm,
        *,
        engines: EnginePool,
        failover: Failover,
        admission: Admission,
        bill: Bill,
        metrics: Metrics,
        keys: KeyRing,
        principal: Principal,
        keep_alive_s: float,
        idle_timeout_s: float,
    ) -> None:
        self.status_code = 200
        self.background = None
        self.body = b""
        self.raw_headers = [
            *_HEADERS,
            *_raw(bill.headers),
        ]
        self._admitted = admitted
        self._failover = failover
        self._engines = engines
        self._admission = admission
        self._bill = bill
        self._metrics = metrics
        self._keys = keys
        self._principal = principal
        self._keep_alive_s = keep_alive_s
        self._idle_timeout_s = idle_timeout_s
        self._form = form
        self._writers = form.writers
        self._latency = metrics.latency.of(admitted.model, class_label(admitted.request_class))
        self._ttft_target_s, self._tbt_target_s = targets_of(admitted.route.member.facts)
        self._started = False
        self._heard_at = self._sent_at = time.monotonic()
        self._received_at = time.perf_counter()
        self._first_sent = False
        self._server_send: Send

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._received_at = scope["state"]["started_at"]
        self._server_send = scope["state"]["server_send"]
        try:
            with self._admission.room(self._admitted):
                work = self._respond(scope, receive, send)
                await while_connected(receive, work, when_gone_of(scope))
        except ClientGone:
            self._metrics.disconnects.inc()
        finally:
            self._bill.settle()

    async def _respond(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            last = await self._keys.while_usable(self._principal, self._relay(send))
        except ApiError as error:
            if not self._started:
                await error_response(self._form.refusal(error))(scope, receive, send)
                return
            last = await self._form.fail(error)
        await self._send(send, last, more=False)

    async def _relay(self, send: Send) -> bytes:
        """Send everything but the stream's last bytes, which are returned.

        Raises:
            ApiError: The engine refused the request, failed at it, or was lost.
        """
        while True:
            try:
                return await self._relay_from(send)
            except EngineUnavailable as error:
                await self._failover.go_on(error)
                self._heard_at = time.monotonic()

    async def _relay_from(self, send: Send) -> bytes:
        with self._engines.using(self._failover.route) as client:
            async with asyncio.TaskGroup() as group:
                pumping = group.create_task(self._pump_all(client, send))
                beat = group.create_task(self._beat(send, pumping))
                pumping.add_done_callback(lambda _: beat.cancel())
            # Had we ourselves been cancelled, the group would have said so.
            if pumping.cancelled():
                raise EngineUnavailable("The engine did not answer in time.") from TimeoutError()
            last = pumping.result()
            if isinstance(last, ApiError):
                raise last
        await self._failover.end()
        return last + await self._form.end()

    async def _pump_all(self, client: EngineClient, send: Send) -> bytes | ApiError:
        """Run every choice to its end; an error as a value, since groups wrap what is raised."""
        pairs = [*zip(self._admitted.choices, self._writers, strict=True)]
        try:
            if len(pairs) == 1:
                return await self._pump(client, *pairs[0], send)
            async with asyncio.TaskGroup() as group:
                for choice, writer in pairs:
                    group.create_task(self._pump_and_send(client, choice, writer, send))
        except StreamFailed as failed:
            return failed.error
        except ApiError as error:
            return error
        except BaseExceptionGroup as errors:
            return _first_of(errors)
        return b""

    async def _pump_and_send(
        self, client: EngineClient, choice: Choice, writer: StreamWriter, send: Send
    ) -> None:
        last = await self._pump(client, choice, writer, send)
        if last:
            await self._send(send, last)

    async def _pump(
        self, client: EngineClient, choice: Choice, writer: StreamWriter, send: Send
    ) -> bytes:
        """Send one choice's chunks; its last bytes are returned, to leave with what follows."""
        stream = await streamed(client, choice.call)
        feed, tbt, target_s = writer.feed, self._latency.tbt, self._tbt_target_s
        num_texts, text_at = 0, 0.0
        try:
            async for frame in stream:
                self._failover.begun = True
                self._heard_at = now = time.monotonic()
                events = frame.events
                out = feed(events[0]) if len(events) == 1 else await self._fed(feed, events, send)
                if out and not self._first_sent:
                    self._note_first()
                if writer.num_texts > num_texts:
                    if num_texts:
                        tbt.add(now - text_at, target_s)
                    num_texts, text_at = writer.num_texts, now
                if frame.done:
                    if not writer.finished:
                        raise StreamFailed(aborted())
                    return out
                if out:
                    await self._send(send, out)
        finally:
            last = None
            try:
                last = await stream.aclose()
            finally:
                choice.call.served.add(_later(writer.usage, last))
        raise EngineUnavailable(ENGINE_LOST)

    async def _fed(
        self, feed: Callable[[bytes], bytes], events: Sequence[bytes], send: Send
    ) -> bytes:
        """What several events become; what those before a failure became is sent."""
        made: list[bytes] = []
        try:
            made.extend(map(feed, events))
        except StreamFailed:
            if self._started:
                await self._send(send, b"".join(made))
            raise
        return b"".join(made)

    async def _beat(self, send: Send, pumping: asyncio.Task[bytes | ApiError]) -> None:
        """A comment whenever nothing was sent for a while; gives up on an engine that is silent."""
        while True:
            now = time.monotonic()
            if now >= self._heard_at + self._idle_timeout_s:
                pumping.cancel()
                return
            if now >= self._sent_at + self._keep_alive_s:
                await self._send(send, KEEP_ALIVE)
            next_at = min(self._sent_at + self._keep_alive_s, self._heard_at + self._idle_timeout_s)
            await asyncio.sleep(max(0.001, next_at - time.monotonic()))

    async def _send(self, send: Send, data: bytes, *, more: bool = True) -> None:
        if not self._started:
            self._started = True
            start: Message = {
                "type": "http.response.start",
                "status": self.status_code,
                "headers": [*self.raw_headers, *_raw(self._admitted.told_headers)],
            }
            await send(start)
        # The start went through every middleware; none has a word to say about the rest.
        await self._server_send({"type": "http.response.body", "body": data, "more_body": more})
        self._sent_at = time.monotonic()

    def _note_first(self) -> None:
        self._first_sent = True
        self._failover.route.note_token()
        took_s = time.perf_counter() - self._received_at
        self._latency.ttft.add(took_s, self._ttft_target_s)


def _raw(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode()) for name, value in headers.items()]


def _later(seen: TokenUsage, last: TokenUsage | None) -> TokenUsage:
    """The later of two counts: what a cut stream's chunks said, and the engine's last word."""
    return seen if last is None or last.total_tokens < seen.total_tokens else last


def _first_of(errors: BaseExceptionGroup[BaseException]) -> ApiError:
    """The error to report of a group; what is no error of an engine is raised again."""
    for error in errors.exceptions:
        if isinstance(error, StreamFailed):
            return error.error
        if isinstance(error, ApiError):
            return error
    raise errors
