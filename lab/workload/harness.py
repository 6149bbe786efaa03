"""Replays online requests beside a full queue of offline ones against a running engine.

Online requests are sent at their instants whatever happens to earlier ones (open loop). The
offline queue is kept at a constant number of outstanding rows, sent ahead of the window so that
it is full when the window opens, until the last online request of the window is answered.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp

from lab.workload.lengths import Lengths, PromptMaker
from lab.workload.records import RequestRecord
from lab.workload.traces import TraceRequest

Reading = Callable[[], Awaitable[int]]
Sampler = Callable[[], Awaitable[tuple[int, int]]]
SAMPLE_EVERY_S = 0.5
NOT_IN_TIME = "not answered in time"

PIECE_TOKENS = 16
"""Tokens of an offline answer that come together: nobody watches them, and each piece costs."""

ONLINE_PRIORITY = 100
OFFLINE_PRIORITY = -100


@dataclass(frozen=True, slots=True)
class Load:
    """What is sent.

    Attributes:
        online: Online requests, arrivals counted from the opening of the window.
        offline: Lengths of offline requests, as many as are needed; None sends none.
        num_outstanding: Offline requests kept outstanding.
        duration_s: Length of the window.
        lead_s: Time the offline queue runs before the window opens.
        drain_s: Time online requests may take after the window.
        send_priority: Whether requests carry a priority at all.
    """

    online: Sequence[TraceRequest]
    offline: Iterator[Lengths] | None
    num_outstanding: int
    duration_s: float
    lead_s: float = 0.0
    drain_s: float = 60.0
    send_priority: bool = True


@dataclass(frozen=True, slots=True)
class RunResult:
    """Records of one run; instant 0 is the opening of the window.

    Attributes:
        online: Online requests in order of arrival.
        offline: Offline requests in order of sending.
        duration_s: Length of the window.
        reading: What the engine's own count grew by inside the window; None if it was not read.
        samples: ``(at_s, steps, offline tokens)`` of the engine's counters, twice a second.
    """

    online: list[RequestRecord]
    offline: list[RequestRecord]
    duration_s: float
    reading: int | None = None
    samples: Sequence[tuple[float, int, int]] = ()

    def offline_tokens_per_s(self) -> float:
        """Fresh offline tokens per second inside the window, as clients see them."""
        tokens = sum(record.tokens_within(0.0, self.duration_s) for record in self.offline)
        return tokens / self.duration_s


class Harness:
    """Sends requests to one engine.

    Args:
        base_url: Where the engine answers.
        prompts: Makes prompts.
        clock: Seconds on a clock that never goes back.
    """

    def __init__(
        self,
        base_url: str,
        prompts: PromptMaker,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._url = base_url.rstrip("/") + "/generate"
        self._prompts = prompts
        self._clock = clock
        self._opened_at = 0.0
        self._session: aiohttp.ClientSession | None = None

    async def run(
        self, load: Load, reading: Reading | None = None, sampler: Sampler | None = None
    ) -> RunResult:
        """Replay the load.

        Args:
            load: What is sent.
            reading: Tokens computed so far; read when the window opens and again when it closes.
            sampler: Reads (steps, offline tokens) all through the window.
        """
        online = [
            RequestRecord(f"online-{i}", True, request.input_tokens, request.arrival_s)
            for i, request in enumerate(load.online)
        ]
        offline: list[RequestRecord] = []
        samples: list[tuple[float, int, int]] = []
        # One connection per request: a pool's limit would be a queue of its own.
        connector = aiohttp.TCPConnector(limit=0)
        timeout = aiohttp.ClientTimeout(total=None, sock_read=600.0)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
            self._session = session
            self._opened_at = self._clock() + load.lead_s
            async with asyncio.TaskGroup() as group:
                readings = [
                    group.create_task(self._read_at(at_s, reading))
                    for at_s in ((0.0, load.duration_s) if reading is not None else ())
                ]
                feeders = [
                    group.create_task(self._feed(load, offline))
                    for _ in range(load.num_outstanding if load.offline is not None else 0)
                ]
                if sampler is not None:
                    group.create_task(self._sample(load.duration_s, sampler, samples))
                await self._online(load, online)
                await self._sleep_until(load.duration_s)
                for feeder in feeders:
                    feeder.cancel()
        if not readings:
            return RunResult(online, offline, load.duration_s, samples=samples)
        opened, closed = [task.result() for task in readings]
        return RunResult(
            online,
            offline,
            load.duration_s,
            closed - opened,
            samples,
        )

    async def _sample(
        self, until_s: float, sampler: Sampler, samples: list[tuple[float, int, int]]
    ) -> None:
        for number in range(int(until_s / SAMPLE_EVERY_S) + 1):
            await self._sleep_until(number * SAMPLE_EVERY_S)
            steps, tokens = await sampler()
            samples.append((self._now_s(), steps, tokens))

    async def _read_at(self, at_s: float, reading: Reading | None) -> int:
        await self._sleep_until(at_s)
        return await reading() if reading is not None else 0

    async def _online(self, load: Load, records: list[RequestRecord]) -> None:
        try:
            async with (
                asyncio.timeout(load.lead_s + load.duration_s + load.drain_s),
                asyncio.TaskGroup() as group,
            ):
                for record, request in zip(records, load.online, strict=True):
                    await self._sleep_until(request.arrival_s)
                    group.create_task(self._send(record, request.output_tokens, load))
        except TimeoutError:
            for record in records:
                if not record.done and not record.error:
                    record.error = NOT_IN_TIME
                    record.given_up_s = max(self._now_s(), record.scheduled_s)

    async def _feed(self, load: Load, records: list[RequestRecord]) -> None:
        """Keep one offline request outstanding."""
        assert load.offline is not None
        for input_tokens, output_tokens in load.offline:
            record = RequestRecord(f"offline-{len(records)}", False, input_tokens, self._now_s())
            records.append(record)
            await self._send(record, output_tokens, load)
            if record.error:
                await asyncio.sleep(0.5)  # an engine that refuses must not be flooded

    async def _send(self, record: RequestRecord, output_tokens: int, load: Load) -> None:
        assert self._session is not None
        body: dict[str, Any] = {
            "input_ids": self._prompts.make(record.name, record.input_tokens),
            "sampling_params": {
                "max_new_tokens": output_tokens,
                "ignore_eos": True,
                "temperature": 0.0,
            },
            "stream": True,
        }
        if not record.online:
            body["sampling_params"]["stream_interval"] = PIECE_TOKENS
        if load.send_priority:
            body["priority"] = ONLINE_PRIORITY if record.online else OFFLINE_PRIORITY
        record.sent_s = self._now_s()
        await self._answer(record, body)
        record.done = not record.error
        if record.error:
            record.given_up_s = self._now_s()

    async def _answer(self, record: RequestRecord, body: dict[str, Any]) -> None:
        assert self._session is not None
        try:
            async with self._session.post(self._url, json=body) as response:
                if response.status != 200:
                    record.error = f"{response.status}: {(await response.text())[:200]}"
                    return
                async for event in _events(response):
                    self._take(record, event)
        except aiohttp.ClientError as error:
            record.error = str(error) or type(error).__name__

    def _take(self, record: RequestRecord, event: dict[str, Any]) -> None:
        if "error" in event:
            record.error = str(event["error"])[:200]
            return
        info = event["meta_info"]
        reason = info.get("finish_reason")
        if isinstance(reason, dict) and reason.get("type") == "abort":
            record.error = str(reason.get("message", "aborted"))[:200]
        record.on_progress(
            self._now_s(),
            info["completion_tokens"],
            info.get("cached_tokens", 0),
            info.get("num_retractions", 0),
        )

    def _now_s(self) -> float:
        return self._clock() - self._opened_at

    async def _sleep_until(self, at_s: float) -> None:
        delay_s = at_s - self._now_s()
        if delay_s > 0.0:
            await asyncio.sleep(delay_s)


async def _events(response: aiohttp.ClientResponse) -> AsyncIterator[dict[str, Any]]:
    """Server-sent events as JSON, up to ``[DONE]``."""
    async for line in response.content:
        if not line.startswith(b"data:"):
            continue
        data = line[5:].strip()
        if data == b"[DONE]":
            return
        yield json.loads(data)
