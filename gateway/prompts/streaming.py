"""Streamed answers: engine events to conforming events, while the caller listens.

One pump per choice reads its engine call and sends what it becomes. Every send holds whole events
and everything that had arrived, so pumps may take turns in any order. `send` waits while the
caller reads slowly, and then the engine's connection is not read either: memory stays bounded.

The response begins with the engine's first event; before it an error is an ordinary error
response (row S-15), after it an error event (S-16), which nothing follows (S-17). If the
engine is silent for `keep_alive_s`, or the request waits in line for so long, the response begins
with a comment (S-18).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from http import HTTPStatus
from typing import TypeVar

from starlette.types import Message, Scope, Send

from api.chunks import KEEP_ALIVE, StreamFailed
from api.engine_errors import ENGINE_LOST, aborted
from api.errors import ApiError, EngineUnavailable
from api.usage import TokenUsage
from engine_adapter.client.base import EngineClient
from engine_adapter.client.choices import ONLINE_AT_ONCE, Choice
from engine_adapter.client.long_answers import BRIEF_BYTES, aside
from engine_adapter.client.request_class import class_label
from engine_adapter.client.shortening import streamed
from gateway.observability.latency_metrics import targets_of
from gateway.observability.metrics import Metrics
from gateway.prompts.failover import Failover
from gateway.prompts.forms import StreamForm, StreamWriter
from gateway.prompts.prompt import Prompt
from gateway.settings import GatewaySettings

T = TypeVar("T")

_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


class EventStream:
    """The response that events are sent in; it begins with the first of them.

    Attributes:
        started: A byte has left, or is about to.
        sent_at: When the last one left, by `time.monotonic`; before, when this was made.

    Args:
        scope: The request's.
        send: Of the response.
        headers: Makes those of the response, beside those of every stream, when it begins.
        keep_alive_s: The longest silence.
    """

    def __init__(
        self,
        scope: Scope,
        send: Send,
        headers: Callable[[], Mapping[str, str]],
        keep_alive_s: float,
    ) -> None:
        self.started = False
        self.sent_at = time.monotonic()
        self._headers = headers
        self._keep_alive_s = keep_alive_s
        self._send_start = send
        # The start goes through every middleware; none has a word to say about the rest.
        self._send_body: Send = scope["state"]["server_send"]

    @property
    def comment_at(self) -> float:
        """When the silence has been too long."""
        return self.sent_at + self._keep_alive_s

    async def send(self, data: bytes, *, more: bool = True) -> None:
        """Send events, or a comment."""
        if not self.started:
            self.started = True
            more_headers = [
                (name.encode(), word.encode()) for name, word in self._headers().items()
            ]
            start: Message = {
                "type": "http.response.start",
                "status": HTTPStatus.OK.value,
                "headers": [*_HEADERS, *more_headers],
            }
            await self._send_start(start)
        await self._send_body({"type": "http.response.body", "body": data, "more_body": more})
        self.sent_at = time.monotonic()

    async def alive_while(self, work: Awaitable[T], comment: Callable[[], bytes]) -> T:
        """Do `work`, and send a comment whenever the silence was too long."""
        task = asyncio.ensure_future(work)
        try:
            while True:
                done, _ = await asyncio.wait({task}, timeout=self.comment_at - time.monotonic())
                if done:
                    return task.result()
                await self.send(comment())
        finally:
            if not task.done():
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task


class StreamedAnswer:
    """The answer to one streamed request.

    Invariant: every engine call has ended or was aborted when `run` returns.
    """

    def __init__(
        self,
        prompt: Prompt,
        form: StreamForm,
        failover: Failover,
        metrics: Metrics,
        settings: GatewaySettings,
        events: EventStream,
    ) -> None:
        self._events = events
        self._prompt = prompt
        self._form = form
        self._failover = failover
        self._idle_timeout_s = settings.request_timeout_s
        self._latency = metrics.latency.of(prompt.model, class_label(prompt.request_class))
        self._ttft_target_s, self._tbt_target_s = targets_of(prompt.route.member.facts)
        self._heard_at = time.monotonic()
        self._first_sent = False
        self._received_at: float

    async def run(
        self, received_at: float, guarded: Callable[[Awaitable[bytes]], Awaitable[bytes]]
    ) -> None:
        """Relay the engine's answer to its end.

        Args:
            received_at: When the request came, by `time.perf_counter`.
            guarded: Ends the relay when its key ends.

        Raises:
            ApiError: The engine refused the request or was lost before anything was sent.
        """
        self._received_at = received_at
        try:
            last = await guarded(self._failover.run(self._relay_from))
        except ApiError as error:
            if not self._events.started:
                raise
            last = await self._form.fail(error)
        await self._events.send(last, more=False)

    async def _relay_from(self, client: EngineClient) -> bytes:
        """Send everything but the stream's last bytes, which are returned.

        Raises:
            ApiError: The engine refused the request, failed at it, or was lost.
        """
        self._heard_at = time.monotonic()
        async with asyncio.TaskGroup() as group:
            pumping = group.create_task(self._pump_all(client))
            beat = group.create_task(self._beat(pumping))
            pumping.add_done_callback(lambda _: beat.cancel())
        # Had we ourselves been cancelled, the group would have said so.
        if pumping.cancelled():
            raise EngineUnavailable("The engine did not answer in time.") from TimeoutError()
        last = pumping.result()
        if isinstance(last, ApiError):
            raise last
        await self._failover.end()
        return last + await self._form.end()

    async def _pump_all(self, client: EngineClient) -> bytes | ApiError:
        """Run every choice to its end; an error as a value, since groups wrap what is raised."""
        pairs = [*zip(self._prompt.choices, self._form.writers, strict=True)]
        try:
            if len(pairs) == 1:
                return await self._pump(client, *pairs[0])
            places = asyncio.Semaphore(ONLINE_AT_ONCE)
            async with asyncio.TaskGroup() as group:
                for choice, writer in pairs:
                    group.create_task(self._pump_and_send(client, choice, writer, places))
        except StreamFailed as failed:
            return failed.error
        except ApiError as error:
            return error
        except BaseExceptionGroup as errors:
            return _first_of(errors)
        return b""

    async def _pump_and_send(
        self,
        client: EngineClient,
        choice: Choice,
        writer: StreamWriter,
        places: asyncio.Semaphore,
    ) -> None:
        async with places:
            last = await self._pump(client, choice, writer)
        if last:
            await self._events.send(last)

    async def _pump(self, client: EngineClient, choice: Choice, writer: StreamWriter) -> bytes:
        """Send one choice's chunks; its last bytes are returned, to leave with what follows."""
        stream = await streamed(client, choice.call)
        feed, tbt, target_s = writer.feed, self._latency.tbt, self._tbt_target_s
        num_texts, text_at = 0, 0.0
        chat, asked_at = self._failover.chat, time.monotonic()
        try:
            async for frame in stream:
                self._failover.begun = True
                self._heard_at = now = time.monotonic()
                events = frame.events
                is_brief = len(events) == 1 and len(events[0]) <= BRIEF_BYTES
                out = feed(events[0]) if is_brief else await self._fed(feed, events)
                if out and not self._first_sent:
                    self._note_first()
                if writer.num_texts > num_texts:
                    if num_texts:
                        tbt.add(now - text_at, target_s)
                        if chat is not None:  # not the time that a slow client took
                            chat.note_gap(now, now - max(text_at, asked_at))
                    num_texts, text_at = writer.num_texts, now
                if frame.done:
                    if not writer.finished:
                        raise StreamFailed(aborted())
                    return out
                if out:
                    await self._events.send(out)
                asked_at = time.monotonic()
        finally:
            last = None
            try:
                last = await stream.aclose()
            finally:
                choice.call.served.add(_later(writer.usage, last))
        raise EngineUnavailable(ENGINE_LOST)

    async def _fed(self, feed: Callable[[bytes], bytes], events: Sequence[bytes]) -> bytes:
        """What several events become; what those before a failure became is sent."""
        made: list[bytes] = []
        is_long = sum(map(len, events)) > BRIEF_BYTES
        try:
            await aside(lambda: made.extend(map(feed, events)), is_long=is_long)
        except StreamFailed:
            if self._events.started:
                await self._events.send(b"".join(made))
            raise
        return b"".join(made)

    async def _beat(self, pumping: asyncio.Task[bytes | ApiError]) -> None:
        """A comment whenever nothing was sent for a while; gives up on an engine that is silent."""
        while True:
            now = time.monotonic()
            if now >= self._heard_at + self._idle_timeout_s:
                pumping.cancel()
                return
            if now >= self._events.comment_at:
                await self._events.send(KEEP_ALIVE)
            next_at = min(self._events.comment_at, self._heard_at + self._idle_timeout_s)
            await asyncio.sleep(max(0.001, next_at - time.monotonic()))

    def _note_first(self) -> None:
        self._first_sent = True
        self._failover.route.note_token()
        if self._failover.chat is not None:
            self._failover.chat.note_first(time.monotonic())
        took_s = time.perf_counter() - self._received_at
        self._latency.ttft.add(took_s, self._ttft_target_s)


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
