"""The harness against a small server that answers like SGLang's native endpoint."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from lab.workload.harness import (
    OFFLINE_PRIORITY,
    ONLINE_PRIORITY,
    PIECE_TOKENS,
    SAMPLE_EVERY_S,
    Harness,
    Load,
)
from lab.workload.lengths import PromptMaker, fixed_lengths
from lab.workload.traces import TraceRequest


class Server:
    """Answers one token every 5 ms; remembers what it was asked."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.refuse = ""
        self.hang = False
        self.outstanding = 0
        self.most_offline = 0

    async def generate(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.bodies.append(body)
        if self.refuse:
            return web.Response(status=503, text=self.refuse)
        offline = body.get("priority", 0) < 0
        self.outstanding += offline
        self.most_offline = max(self.most_offline, self.outstanding)
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            for n in range(1, body["sampling_params"]["max_new_tokens"] + 1):
                await asyncio.sleep(60.0 if self.hang else 0.005)
                info = {"completion_tokens": n, "cached_tokens": 2, "finish_reason": None}
                await response.write(b"data: " + json.dumps({"meta_info": info}).encode())
                await response.write(b"\n\n")
            await response.write(b"data: [DONE]\n\n")
        finally:
            self.outstanding -= offline
        return response


@pytest.fixture
async def server() -> AsyncIterator[tuple[Server, str]]:
    state = Server()
    app = web.Application()
    app.router.add_post("/generate", state.generate)
    # A client that goes away cancels its handler, as it does in an engine.
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield state, f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


def load(**changes: Any) -> Load:
    online = [TraceRequest(0.0, 10, 3), TraceRequest(0.1, 20, 2)]
    fields: dict[str, Any] = {
        "online": online, "offline": fixed_lengths(30, 4), "num_outstanding": 5,
        "duration_s": 0.3, "lead_s": 0.05, "drain_s": 2.0,
    }  # fmt: skip
    return Load(**{**fields, **changes})


async def test_online_and_offline_requests_are_recorded(server: tuple[Server, str]) -> None:
    state, url = server
    result = await Harness(url, PromptMaker(1000, 1)).run(load())
    assert [len(r.token_times_s) for r in result.online] == [3, 2]
    assert all(r.done for r in result.online)
    assert result.online[1].sent_s == pytest.approx(0.1, abs=0.08)
    assert all(gap > 0.0 for r in result.online for gap in r.gaps_s)
    assert sum(r.done for r in result.offline) > 5
    assert state.most_offline == 5
    # offline load began before the window opened
    assert min(r.sent_s for r in result.offline) < 0.0
    assert result.offline_tokens_per_s() > 0.0
    by_length = {len(body["input_ids"]): body for body in state.bodies}
    assert by_length[10]["priority"] == 100
    assert by_length[30]["priority"] == -100
    assert by_length[10]["sampling_params"] == {
        "max_new_tokens": 3,
        "ignore_eos": True,
        "temperature": 0.0,
    }


async def test_only_offline_answers_come_in_pieces(server: tuple[Server, str]) -> None:
    state, url = server
    await Harness(url, PromptMaker(1000, 1)).run(load())
    by_class = {
        body["priority"]: body["sampling_params"].get("stream_interval") for body in state.bodies
    }
    assert by_class == {ONLINE_PRIORITY: None, OFFLINE_PRIORITY: PIECE_TOKENS}


async def test_the_engine_is_read_when_the_window_opens_and_closes(
    server: tuple[Server, str],
) -> None:
    state, url = server
    readings: list[int] = []

    async def reading() -> int:
        readings.append(len(state.bodies))
        return readings[-1]

    result = await Harness(url, PromptMaker(1000, 1)).run(load(), reading)
    assert len(readings) == 2
    assert result.reading == readings[1] - readings[0]
    assert readings[0] >= 5  # the offline queue was full before the window opened
    assert result.reading > 2


async def test_counters_are_sampled_all_through_the_window(server: tuple[Server, str]) -> None:
    state, url = server

    async def sampler() -> tuple[int, int]:
        return len(state.bodies), 0

    result = await Harness(url, PromptMaker(1000, 1)).run(load(), sampler=sampler)
    instants = [at_s for at_s, _, _ in result.samples]
    assert instants == sorted(instants)
    assert len(instants) == int(load().duration_s / SAMPLE_EVERY_S) + 1
    assert result.samples[0][1] >= 5  # the offline queue was full before the window opened


async def test_without_priorities_none_is_sent(server: tuple[Server, str]) -> None:
    state, url = server
    await Harness(url, PromptMaker(1000, 1)).run(load(offline=None, send_priority=False))
    assert len(state.bodies) == 2
    assert not any("priority" in body for body in state.bodies)


async def test_a_refusal_is_recorded(server: tuple[Server, str]) -> None:
    state, url = server
    state.refuse = "queue is full"
    result = await Harness(url, PromptMaker(1000, 1)).run(load(offline=None))
    assert [r.error for r in result.online] == ["503: queue is full"] * 2
    assert not any(r.done for r in result.online)


async def test_what_is_not_answered_in_time_is_said(server: tuple[Server, str]) -> None:
    state, url = server
    state.hang = True
    result = await Harness(url, PromptMaker(1000, 1)).run(load(offline=None, drain_s=0.05))
    assert [r.error for r in result.online] == ["not answered in time"] * 2


async def test_an_engine_that_is_gone_is_an_error_not_a_crash() -> None:
    result = await Harness("http://127.0.0.1:9", PromptMaker(1000, 1)).run(load(offline=None))
    assert all(r.error for r in result.online)
