"""Many inputs as many calls, over each `EngineClient`; tests/engine has the real engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from api.errors import EngineUnavailable
from api.usage import TokenUsage
from engine_adapter.client.base import CHAT_PATH, EMBEDDINGS_PATH, EngineCall, EngineClient
from engine_adapter.client.embedding import MAX_AT_ONCE, embed
from engine_adapter.client.http import HttpEngineClient
from engine_adapter.client.request_class import RequestClass
from engine_adapter.client.rid import new_rid
from tests.fakes.client import FakeEngine, FakeEngineClient, FakeSettings
from tests.fakes.server import serving


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine(FakeSettings(context_tokens=100, embeds=True))


@pytest.fixture(params=["http", "in process"])
async def client(request: pytest.FixtureRequest, engine: FakeEngine) -> AsyncIterator[EngineClient]:
    if request.param == "in process":
        yield FakeEngineClient(engine)
        return
    async with serving(engine) as url:
        client = HttpEngineClient(url)
        yield client
        await client.close()


def call(given: Any, **more: Any) -> EngineCall:
    body = {"model": "fake-model", "input": given, **more}
    return EngineCall(EMBEDDINGS_PATH, body, new_rid(), RequestClass.OFFLINE)


def vectors(body: dict[str, Any]) -> list[Any]:
    assert [item["index"] for item in body["data"]] == list(range(len(body["data"])))
    return [item["embedding"] for item in body["data"]]


async def test_thousands_of_inputs_are_a_few_tasks() -> None:
    client = FakeEngineClient(FakeEngine(FakeSettings(embeds=True, token_s=0.0)))
    num_before = len(asyncio.all_tasks())
    asking = asyncio.ensure_future(embed(client, call(["text"] * 2048)))
    most = 0
    while not asking.done():
        most = max(most, len(asyncio.all_tasks()))
        await asyncio.sleep(0)
    assert most <= num_before + 3 * MAX_AT_ONCE
    assert [item["index"] for item in asking.result().body["data"]] == list(range(2048))


async def test_many_inputs_are_the_single_ones_in_order(client: EngineClient) -> None:
    texts = [f"text number {i}" for i in range(3 * MAX_AT_ONCE)]
    whole = await embed(client, call(texts))
    assert (whole.ok, whole.usage) == (True, TokenUsage(prompt_tokens=3 * len(texts)))
    assert whole.body["usage"] == {"prompt_tokens": 288, "total_tokens": 288}
    single = [await embed(client, call(text)) for text in texts[:3]]
    assert vectors(whole.body)[:3] == [vectors(one.body)[0] for one in single]
    assert len({tuple(vector) for vector in vectors(whole.body)}) == len(texts)


async def test_what_the_engine_is_sent(client: EngineClient, engine: FakeEngine) -> None:
    asked = call(["a", [1, 2]], dimensions=4, encoding_format="base64", priority=9, rid="mine")
    reply = await embed(client, asked)
    assert [len(vector) for vector in vectors(reply.body)] == [24, 24], "base64 of 16 bytes"
    received = sorted(engine.received, key=lambda body: str(body["input"]))
    assert [body["input"] for body in received] == [[1, 2], "a"]
    assert {body["priority"] for body in received} == {-2}
    assert len({body["rid"] for body in received}) == 2
    assert asked.rid in {body["rid"] for body in received}
    assert all(
        body.keys() == {"model", "input", "dimensions", "rid", "priority", "custom_params"}
        for body in received
    )


async def test_one_refused_input_is_the_reply_and_ends_the_others(
    client: EngineClient, engine: FakeEngine
) -> None:
    reply = await embed(client, call(["fake:token_ms=60000 fake:tokens=9", "word " * 200]))
    assert (reply.status_code, reply.retryable) == (400, False)
    error = reply.body["error"]
    assert (error["code"], error["param"]) == ("context_length_exceeded", "input")
    async with asyncio.timeout(2):
        while engine.waiting or engine.running:
            await asyncio.sleep(0.005)


async def test_a_lost_engine_is_said_with_its_cause(client: EngineClient) -> None:
    with pytest.raises(EngineUnavailable) as lost:
        await embed(client, call(["a", "fake:die_after=0", "b"]))
    assert lost.value.__cause__ is not None


async def test_too_many_dimensions(client: EngineClient) -> None:
    reply = await embed(client, call("a", dimensions=33))
    assert reply.status_code == 400
    assert "dimensions" in reply.body["error"]["message"]


async def test_it_says_that_it_embeds_and_does_nothing_else(client: EngineClient) -> None:
    assert (await client.facts()).embeds
    chat = {"model": "fake-model", "messages": [{"role": "user", "content": "x"}]}
    reply = await client.call(EngineCall(CHAT_PATH, chat, new_rid(), RequestClass.ONLINE))
    assert reply.status_code == 400
