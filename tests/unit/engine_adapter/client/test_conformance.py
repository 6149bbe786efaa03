"""What every `EngineClient` does, over each of them (the real engine's run is in tests/engine)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import orjson
import pytest

from api.errors import ApiError, EngineUnavailable
from api.usage import TokenUsage
from engine_adapter.client.base import (
    CHAT_PATH,
    COMPLETIONS_PATH,
    EngineCall,
    EngineClient,
    RequestClass,
)
from engine_adapter.client.http import HttpEngineClient
from engine_adapter.client.rid import new_rid
from engine_adapter.scheduling.policies.settings import Level
from tests.fakes.client import FakeEngine, FakeEngineClient, FakeSettings
from tests.fakes.server import serving


@dataclass
class Seat:
    """A client and the fake engine behind it."""

    client: EngineClient
    engine: FakeEngine


@pytest.fixture(params=["http", "in process"])
async def seat(request: pytest.FixtureRequest) -> AsyncIterator[Seat]:
    engine = FakeEngine(FakeSettings(context_tokens=100))
    if request.param == "in process":
        yield Seat(FakeEngineClient(engine), engine)
        return
    async with serving(engine) as url:
        client = HttpEngineClient(url)
        yield Seat(client, engine)
        await client.close()


def chat(prompt: str, **more: Any) -> EngineCall:
    body = {"model": "fake-model", "messages": [{"role": "user", "content": prompt}]}
    timeout_s = more.pop("timeout_s", 30.0)
    return EngineCall(
        CHAT_PATH, {**body, **more}, new_rid(), RequestClass.ONLINE, timeout_s=timeout_s
    )


async def until_live(seat: Seat, rid: str) -> None:
    async with asyncio.timeout(5):
        while rid not in await seat.client.live_rids():
            await asyncio.sleep(0.005)


async def until_free(seat: Seat) -> None:
    async with asyncio.timeout(2):
        while await seat.client.live_rids():
            await asyncio.sleep(0.005)


async def test_a_whole_chat_answer(seat: Seat) -> None:
    call = chat("say fake:text=Paris_it_is")
    reply = await seat.client.call(call)
    assert reply.ok
    assert reply.body["id"] == f"chatcmpl-{call.rid}"
    assert reply.body["choices"][0]["message"]["content"] == "Paris it is"
    assert reply.usage == TokenUsage(prompt_tokens=2, completion_tokens=3)
    assert len(await seat.client.live_rids()) == 0


async def test_a_whole_completion(seat: Seat) -> None:
    body = {"model": "fake-model", "prompt": "hi", "max_tokens": 2}
    reply = await seat.client.call(
        EngineCall(COMPLETIONS_PATH, body, new_rid(), RequestClass.OFFLINE)
    )
    assert reply.body["object"] == "text_completion"
    assert reply.body["choices"][0] == {
        "text": "1 2", "index": 0, "logprobs": None, "finish_reason": "length",
    }  # fmt: skip


async def test_a_stream_ends_by_saying_so(seat: Seat) -> None:
    stream = await seat.client.stream(chat("fake:tokens=5"))
    frames = [frame async for frame in stream]
    await stream.aclose()
    assert [frame.done for frame in frames[:-1]] == [False] * (len(frames) - 1)
    assert frames[-1].done
    events = [orjson.loads(event) for frame in frames for event in frame.events]
    text = "".join(
        choice["delta"].get("content") or "" for event in events for choice in event["choices"]
    )
    assert text == "1 2 3 4 5"
    assert events[-1]["usage"]["completion_tokens"] == 5
    assert len(await seat.client.live_rids()) == 0


@pytest.mark.parametrize(
    ("status", "expected", "retryable"), [(500, 500, True), (503, 503, True), (404, 404, False)]
)
async def test_an_engines_error_is_a_reply_in_the_envelope(
    seat: Seat, status: int, expected: int, *, retryable: bool
) -> None:
    call = chat(f"fake:status={status}")
    reply = await seat.client.call(call)
    assert (reply.ok, reply.status_code, reply.retryable) == (False, expected, retryable)
    assert list(reply.body["error"]) == ["message", "type", "param", "code"]
    with pytest.raises(ApiError) as refused:
        await seat.client.stream(call)
    assert refused.value.status == expected


async def test_a_prompt_that_is_too_long(seat: Seat) -> None:
    reply = await seat.client.call(chat("word " * 200))
    assert (reply.status_code, reply.retryable) == (400, False)
    assert reply.body["error"]["code"] == "context_length_exceeded"
    assert reply.body["error"]["param"] == "messages"


async def test_an_abort_by_somebody_else_is_worth_repeating(seat: Seat) -> None:
    reply = await seat.client.call(chat("fake:finish=abort"))
    assert (reply.status_code, reply.retryable) == (503, True)
    assert reply.body["error"]["code"] == "engine_unavailable"


async def test_abort_takes_a_request_and_only_it(seat: Seat) -> None:
    first, second = chat("fake:token_ms=5000"), chat("fake:token_ms=5000")
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(seat.client.call(call)) for call in (first, second)]
        await until_live(seat, first.rid)
        await until_live(seat, second.rid)
        assert await seat.client.abort(first.rid)
        live = await seat.client.live_rids()
        assert first.rid not in live
        assert second.rid in live
        assert await seat.client.abort(first.rid), "idempotent"
        assert await seat.client.abort(second.rid)
    assert [task.result().status_code for task in tasks] == [503, 503]


async def test_abort_of_what_never_was(seat: Seat) -> None:
    assert await seat.client.abort(new_rid())


async def test_a_cancelled_call_frees_its_slot(seat: Seat) -> None:
    call = chat("fake:token_ms=5000")
    task = asyncio.ensure_future(seat.client.call(call))
    await until_live(seat, call.rid)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until_free(seat)


async def test_a_call_that_takes_too_long_frees_its_slot(seat: Seat) -> None:
    with pytest.raises(EngineUnavailable):
        await seat.client.call(chat("fake:token_ms=5000", timeout_s=0.1))
    await until_free(seat)


async def test_a_stream_that_is_left_frees_its_slot(seat: Seat) -> None:
    call = chat("fake:token_ms=20 fake:tokens=90")
    stream = await seat.client.stream(call)
    async for _ in stream:
        break
    await stream.aclose()
    await until_free(seat)
    await stream.aclose()


async def test_an_engine_that_dies_in_the_middle(seat: Seat) -> None:
    with pytest.raises(EngineUnavailable):
        await seat.client.call(chat("fake:die_after=2"))
    stream = await seat.client.stream(chat("fake:die_after=2"))
    with pytest.raises(EngineUnavailable):
        async for _ in stream:
            pass
    await stream.aclose()


async def test_facts_and_health(seat: Seat) -> None:
    facts = await seat.client.facts()
    assert (facts.model, facts.context_tokens, facts.max_running) == ("fake-model", 100, 256)
    assert await seat.client.healthy()


async def test_who_waits_and_who_runs() -> None:
    engine = FakeEngine(FakeSettings(max_running=1))
    client = FakeEngineClient(engine)
    calls = [chat("fake:token_ms=5000"), chat("fake:token_ms=5000")]
    async with asyncio.TaskGroup() as group:
        for call in calls:
            group.create_task(client.call(call))
        await until_live(Seat(client, engine), calls[1].rid)
        live = await client.live_rids()
        assert live.running == {calls[0].rid}
        assert live.waiting == {calls[1].rid}
        for call in calls:
            await client.abort(call.rid)


async def test_no_engine_at_all() -> None:
    client = HttpEngineClient("http://127.0.0.1:1")
    try:
        for act in (client.facts, client.live_rids):
            with pytest.raises(EngineUnavailable):
                await act()
        with pytest.raises(EngineUnavailable):
            await client.call(chat("hi"))
        with pytest.raises(EngineUnavailable):
            await client.stream(chat("hi"))
        assert not await client.healthy()
    finally:
        await client.close()


async def test_a_profile_is_measured_anew_where_there_is_one(seat: Seat) -> None:
    assert not await seat.client.profile_anew(), "it reports no profile"
    seat.engine.report["profile"] = {"state": "stored"}
    assert await seat.client.profile_anew()
    assert (await seat.client.facts()).reported("profile.state") == "measuring"


async def test_a_level_is_taken_where_there_are_levels(seat: Seat) -> None:
    assert not await seat.client.set_level(Level.MAX), "it reports no level"
    seat.engine.report["level"] = "balanced"
    assert await seat.client.set_level(Level.INVISIBLE)
    assert (await seat.client.facts()).reported("level") == "invisible"
