from __future__ import annotations

import asyncio
from typing import Any

import pytest

from api.errors import EngineUnavailable
from engine_adapter.client.base import (
    CHAT_PATH,
    COMPLETIONS_PATH,
    EngineCall,
    RequestClass,
    TokenUsage,
)
from engine_adapter.client.choices import complete
from engine_adapter.client.rid import new_rid
from tests.fakes.client import FakeEngine, FakeEngineClient, FakeSettings


def call_of(path: str, **body: Any) -> EngineCall:
    return EngineCall(path, {"model": "fake-model", **body}, new_rid(), RequestClass.OFFLINE)


def chat(prompt: str, **more: Any) -> EngineCall:
    return call_of(CHAT_PATH, messages=[{"role": "user", "content": prompt}], **more)


async def test_one_reply_has_all_choices_and_its_prompt_once() -> None:
    call = chat("fake:tokens=4 two three", n=3, seed=7)
    client = FakeEngineClient()
    reply = await complete(client, call)
    assert reply.ok
    assert [one["index"] for one in reply.body["choices"]] == [0, 1, 2]
    assert {one["message"]["content"] for one in reply.body["choices"]} == {"1 2 3 4"}
    assert reply.body["usage"]["prompt_tokens"] == 3
    assert reply.body["usage"]["completion_tokens"] == 12
    assert call.served.usage == TokenUsage(prompt_tokens=3, completion_tokens=12)
    assert [body["seed"] for body in client.engine.received] == [7, 8, 9]
    assert {body["n"] for body in client.engine.received} == {1}


async def test_prompts_of_a_completion_are_choices_in_their_order() -> None:
    call = call_of(COMPLETIONS_PATH, prompt=["fake:text=first", "fake:text=second x"], n=2)
    reply = await complete(FakeEngineClient(), call)
    texts = [one["text"] for one in reply.body["choices"]]
    assert texts == ["first", "first", "second", "second"]
    assert [one["index"] for one in reply.body["choices"]] == [0, 1, 2, 3]
    assert reply.body["usage"]["prompt_tokens"] == 1 + 2


async def test_half_a_reply_is_no_reply() -> None:
    call = call_of(COMPLETIONS_PATH, prompt=["fake:tokens=2", "fake:status=400"])
    reply = await complete(FakeEngineClient(), call)
    assert reply.status_code == 400
    assert "error" in reply.body


async def test_a_lost_engine_is_said_to_be_lost() -> None:
    with pytest.raises(EngineUnavailable):
        await complete(FakeEngineClient(), chat("fake:die_after=1 fake:tokens=3", n=2))


async def test_all_choices_leave_the_engine_with_their_request() -> None:
    client = FakeEngineClient(FakeEngine(FakeSettings(latency_s=60)))
    call = chat("one two", n=3)
    task = asyncio.ensure_future(complete(client, call))
    while len(client.engine.running) < 3:
        await asyncio.sleep(0.001)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not client.engine.running
    assert call.served.usage.prompt_tokens == 2
