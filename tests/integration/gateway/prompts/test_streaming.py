"""Streamed answers, with the official client and on the bare wire."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import openai
import pytest

from tests.integration.gateway.conftest import MODEL, Online


async def wire(online: Online, path: str, body: dict[str, Any]) -> list[Any]:
    """Every event's data, parsed; `[DONE]` as it is."""
    async with online.http() as http, http.stream("POST", path, json=body) as reply:
        assert reply.status_code == 200
        assert reply.headers["content-type"].startswith("text/event-stream")
        assert reply.headers["cache-control"] == "no-cache"
        assert reply.headers["x-request-id"].startswith("req_")
        raw = (await reply.aread()).decode()
    blocks = raw.split("\n\n")
    assert blocks.pop() == ""
    data = [block.removeprefix("data: ") for block in blocks if not block.startswith(":")]
    assert all("\n" not in line for line in data)
    return [line if line == "[DONE]" else json.loads(line) for line in data]


async def test_a_stream_in_the_contracts_order(online: Online) -> None:
    *chunks, done = await wire(
        online, "/v1/chat/completions", online.chat("fake:text=Paris_it_is", stream=True)
    )
    assert done == "[DONE]"
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert len({(chunk["id"], chunk["created"], chunk["model"]) for chunk in chunks}) == 1
    choices = [chunk["choices"][0] for chunk in chunks]
    assert choices[0]["delta"]["role"] == "assistant"
    assert "".join(choice["delta"].get("content", "") for choice in choices) == "Paris it is"
    assert [choice["finish_reason"] for choice in choices] == [None, None, None, None, "stop"]
    assert choices[-1]["delta"] == {}
    assert not any("usage" in chunk or "sglext" in chunk for chunk in chunks)


@pytest.mark.contract("S-09")
async def test_usage_in_the_last_chunk_if_asked_for(online: Online) -> None:
    body = online.chat("a b fake:tokens=4", stream=True, stream_options={"include_usage": True})
    *chunks, last, done = await wire(online, "/v1/chat/completions", body)
    assert done == "[DONE]"
    assert all(chunk["usage"] is None for chunk in chunks)
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 4
    assert last["usage"]["prompt_tokens"] == 3


@pytest.mark.contract("L-07")
async def test_completions_stream_too(online: Online) -> None:
    body = {"model": MODEL, "prompt": "hi", "stream": True, "max_tokens": 3}
    *chunks, done = await wire(online, "/v1/completions", body)
    assert done == "[DONE]"
    assert {chunk["object"] for chunk in chunks} == {"text_completion"}
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == "1 2 3"
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None, None, "length"]


@pytest.mark.contract("S-07")
async def test_streamed_and_whole_text_are_the_same(online: Online) -> None:
    body = online.chat('fake:text=é_😀_"quoted"_\\n')
    async with online.client() as client:
        whole = await client.chat.completions.create(**body)
        text = ""
        async for chunk in await client.chat.completions.create(**body, stream=True):
            text += chunk.choices[0].delta.content or ""
    assert text == whole.choices[0].message.content


@pytest.mark.contract("S-13")
async def test_several_choices_interleave_and_each_ends_once(online: Online) -> None:
    body = online.chat("fake:tokens=5 fake:token_ms=2", n=3)
    texts, ends, usage = ["", "", ""], [0, 0, 0], None
    async with online.client() as client:
        async for chunk in await client.chat.completions.create(
            **body, stream=True, stream_options={"include_usage": True}
        ):
            usage = chunk.usage or usage
            for choice in chunk.choices:
                texts[choice.index] += choice.delta.content or ""
                ends[choice.index] += choice.finish_reason is not None
    assert texts == ["1 2 3 4 5"] * 3
    assert ends == [1, 1, 1]
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens) == (2, 15)


@pytest.mark.contract("S-01")
async def test_the_first_token_is_not_held_back(online: Online) -> None:
    async with asyncio.timeout(60), online.client() as client:
        stream = await client.chat.completions.create(
            # The second token is an hour behind the first: whoever collects them shows nothing.
            **online.chat("fake:tokens=2 fake:token_ms=3600000"),
            stream=True,
        )
        assert (await anext(aiter(stream))).choices
        assert len(online.engine.running) == 1
        await stream.close()
    await online.until_engine_is_free()


@pytest.mark.parametrize("num_choices", [1, 3])
@pytest.mark.contract("S-19")
async def test_a_client_that_goes_away_frees_its_slots(online: Online, num_choices: int) -> None:
    async with online.client() as client:
        stream = await client.chat.completions.create(
            # The next token is a minute away: nothing but an abort can free the slot in time.
            **online.chat("fake:tokens=9 fake:token_ms=60000", n=num_choices),
            stream=True,
        )
        async for _ in stream:
            break
        await online.until_engine_is_busy(num_choices)
        await stream.close()
        await online.until_engine_is_free()


async def test_a_client_that_goes_before_the_first_token(online: Online) -> None:
    async with online.http() as http:
        body = online.chat("hi", stream=True)
        online.engine.settings = replace(online.engine.settings, latency_s=60.0)
        asking = asyncio.ensure_future(http.post("/v1/chat/completions", json=body))
        await online.until_engine_is_busy()
        asking.cancel()
        await online.until_engine_is_free()


@pytest.mark.contract("S-15", "T-25")
async def test_an_error_before_the_first_byte_is_an_ordinary_one(online: Online) -> None:
    async with online.client() as client:
        with pytest.raises(openai.BadRequestError) as refused:
            await client.chat.completions.create(**online.chat("word " * 3000), stream=True)
        assert refused.value.code == "context_length_exceeded"
        assert refused.value.param == "messages"
        with pytest.raises(openai.InternalServerError):
            await client.chat.completions.create(**online.chat("fake:status=500"), stream=True)


@pytest.mark.parametrize(
    ("order", "code"),
    [
        ("fake:token_ms=20 fake:die_after=3", "engine_unavailable"),
        ("fake:token_ms=20 fake:fail_after=3", "engine_error"),
        ("fake:token_ms=20 fake:finish=abort", "engine_unavailable"),
    ],
)
@pytest.mark.contract("S-16", "S-17")
async def test_an_error_in_the_middle_is_an_event_and_the_end(
    online: Online, order: str, code: str
) -> None:
    body = online.chat(order, stream=True)
    *chunks, last = await wire(online, "/v1/chat/completions", body)
    assert set(last) == {"error"}
    assert list(last["error"]) == ["message", "type", "param", "code"]
    assert last["error"]["code"] == code
    assert all(chunk["choices"][0]["finish_reason"] is None for chunk in chunks)
    async with online.client() as client:
        with pytest.raises(openai.APIError) as failed:
            async for _ in await client.chat.completions.create(**body):
                pass
    assert failed.value.code == code


@pytest.mark.contract("S-21")
async def test_a_connection_is_good_for_the_next_stream(online: Online) -> None:
    async with online.http() as http:
        for _ in range(5):
            body = online.chat("hi", stream=True)
            async with http.stream("POST", "/v1/chat/completions", json=body) as reply:
                assert (await reply.aread()).endswith(b"data: [DONE]\n\n")
        assert len(online.server.server_state.connections) == 1


async def test_a_slow_reader_holds_the_engines_stream_back(online: Online) -> None:
    """What a reader does not take is not piled up here: the engine's side stops as well."""
    body = json.dumps(online.chat("fake:tokens=200000 fake:token_ms=0", stream=True)).encode()
    host, port = online.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=1024)
    writer.write(
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        b"authorization: Bearer " + online.key.encode() + b"\r\n"
        b"content-length: %d\r\n\r\n" % len(body) + body
    )
    await reader.readline()
    await online.until_engine_is_busy()
    await asyncio.sleep(1.0)
    assert len(online.engine.running) == 1, "the engine ran to its end: all of it is in memory"
    writer.close()
    await online.until_engine_is_free(limit_s=10)  # what the sockets hold is thrown away first
