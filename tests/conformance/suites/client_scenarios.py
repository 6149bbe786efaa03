"""What a user does, with the official Python client: each scenario over every transport it has.

Strict validation is on: a reply that does not have the client's own types is an error.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final

import openai
import pytest
from openai import AsyncOpenAI, DefaultAioHttpClient, DefaultAsyncHttpx2Client, OpenAI

URL = os.environ["CONFORMANCE_URL"]
KEY = os.environ["CONFORMANCE_KEY"]
MODEL = os.environ["CONFORMANCE_MODEL"]
EMBEDDER = os.environ["CONFORMANCE_EMBEDDER"]
CHAT: Final = "/v1/chat/completions"
HELLO: list[Any] = [{"role": "user", "content": "Say hello."}]
BATCH_LIMIT_S = 90.0

needs_embedder = pytest.mark.skipif(not EMBEDDER, reason="no engine here makes embeddings")


@pytest.fixture(params=["httpx2", "aiohttp"])
async def client(request: pytest.FixtureRequest) -> AsyncIterator[AsyncOpenAI]:
    transport = DefaultAioHttpClient() if request.param == "aiohttp" else DefaultAsyncHttpx2Client()
    async with AsyncOpenAI(
        base_url=f"{URL}/v1",
        api_key=KEY,
        max_retries=0,
        http_client=transport,
        _strict_response_validation=True,
    ) as made:
        yield made


@pytest.fixture
def sync() -> Iterator[OpenAI]:
    with OpenAI(
        base_url=f"{URL}/v1", api_key=KEY, max_retries=0, _strict_response_validation=True
    ) as made:
        yield made


async def test_chat_whole_and_streamed(client: AsyncOpenAI) -> None:
    asked: dict[str, Any] = {
        "model": MODEL,
        "messages": HELLO,
        "max_tokens": 6,
        "temperature": 0,
    }
    whole = await client.chat.completions.create(**asked)
    assert whole.choices[0].finish_reason in ("stop", "length")
    assert whole.usage is not None
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens
    text, finishes, usage = "", [], None
    async for chunk in await client.chat.completions.create(
        **asked, stream=True, stream_options={"include_usage": True}
    ):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            text += choice.delta.content or ""
            finishes += [choice.finish_reason] if choice.finish_reason else []
    assert text == whole.choices[0].message.content
    assert finishes == [whole.choices[0].finish_reason]
    assert usage is not None
    assert usage.completion_tokens == whole.usage.completion_tokens


async def test_the_clients_own_stream_helper(client: AsyncOpenAI) -> None:
    # No limit: the helper's end raises where an answer was cut short.
    async with client.chat.completions.stream(model=MODEL, messages=HELLO, temperature=0) as stream:
        kinds = [event.type async for event in stream]
        final = await stream.get_final_completion()
    assert {"chunk", "content.delta", "content.done"} <= set(kinds)
    assert final.choices[0].message.content


async def test_raw_and_streaming_response(client: AsyncOpenAI) -> None:
    create = client.chat.completions
    raw = await create.with_raw_response.create(model=MODEL, messages=HELLO, max_tokens=3)
    assert raw.headers["x-request-id"].startswith("req_")
    assert int(raw.headers["openai-processing-ms"]) >= 0
    assert raw.parse().object == "chat.completion"
    async with create.with_streaming_response.create(
        model=MODEL, messages=HELLO, max_tokens=3
    ) as response:
        lines = [line async for line in response.iter_lines()]
    assert json.loads("".join(lines))["object"] == "chat.completion"


async def test_leaving_a_stream_leaves_the_connection_usable(client: AsyncOpenAI) -> None:
    for _ in range(3):
        async with await client.chat.completions.create(
            model=MODEL, messages=HELLO, max_tokens=500, stream=True
        ) as stream:
            async for _chunk in stream:
                break
    assert (await client.models.retrieve(MODEL)).id == MODEL


async def test_many_at_once_do_not_mix(client: AsyncOpenAI) -> None:
    async with asyncio.TaskGroup() as group:
        asked = [
            group.create_task(
                client.completions.create(model=MODEL, prompt="x " * size, max_tokens=2)
            )
            for size in range(1, 21)
        ]
    counted = [task.result().usage for task in asked]
    tokens = [usage.prompt_tokens for usage in counted if usage is not None]
    assert tokens == sorted(set(tokens))


async def test_completions_of_several_prompts(client: AsyncOpenAI) -> None:
    made = await client.completions.create(model=MODEL, prompt=["One,", "A,"], n=2, max_tokens=3)
    assert [choice.index for choice in made.choices] == [0, 1, 2, 3]


@needs_embedder
async def test_embeddings(client: AsyncOpenAI) -> None:
    # By itself the client asks for base64, and decodes it only after the strict validation, which
    # knows numbers alone: it would refuse any server's reply.
    lenient = client.with_options(_extra_kwargs={"_strict_response_validation": False})
    whole = await lenient.embeddings.create(model=EMBEDDER, input=["a", "b", "a"])
    numbers = await client.embeddings.create(model=EMBEDDER, input="a", encoding_format="float")
    assert whole.data[0].embedding == whole.data[2].embedding != whole.data[1].embedding
    assert whole.data[0].embedding == pytest.approx(numbers.data[0].embedding, abs=1e-6)
    with pytest.raises(openai.BadRequestError) as refused:
        await client.embeddings.create(model=MODEL, input="a")
    assert refused.value.code == "unsupported_model"


async def test_errors_are_the_clients_classes(client: AsyncOpenAI) -> None:
    create = client.chat.completions.create
    with pytest.raises(openai.NotFoundError) as unknown:
        await create(model="no-such-model", messages=HELLO)
    assert unknown.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as wrong:
        await create(model=MODEL, messages=HELLO, temperature=3)
    assert wrong.value.param == "temperature"
    assert wrong.value.request_id is not None
    with pytest.raises(openai.BadRequestError) as long:
        await create(model=MODEL, messages=[{"role": "user", "content": "word " * 30_000}])
    assert long.value.code == "context_length_exceeded"
    with pytest.raises(openai.AuthenticationError):
        await client.with_options(api_key="sk-wrong").models.list()
    with pytest.raises(openai.NotFoundError):
        await client.files.retrieve("file-none")
    with pytest.raises(openai.NotFoundError):
        await client.batches.retrieve("batch_none")


async def test_files_there_and_back(client: AsyncOpenAI) -> None:
    data = b'{"a": 1}\n' * 1000
    made = [await client.files.create(file=(f"{i}.jsonl", data), purpose="batch") for i in range(3)]
    mine = {one.id for one in made}
    assert mine <= {one.id async for one in client.files.list(limit=2)}
    assert (await client.files.content(made[0].id)).content == data
    async with client.files.with_streaming_response.content(made[1].id) as response:
        assert b"".join([part async for part in response.iter_bytes()]) == data
    for one in made:
        assert (await client.files.delete(one.id)).deleted
    with pytest.raises(openai.NotFoundError):
        await client.files.content(made[0].id)


async def test_a_batch_from_file_to_results(client: AsyncOpenAI) -> None:
    names = [f"line-{i}" for i in range(5)]
    bodies: list[dict[str, Any]] = [
        {"model": MODEL, "messages": HELLO, "max_tokens": 3} for _ in names
    ]
    bodies[4]["messages"] = [{"role": "user", "content": "word " * 30_000}]
    lines = [
        json.dumps({"custom_id": name, "method": "POST", "url": CHAT, "body": body})
        for name, body in zip(names, bodies, strict=True)
    ]
    file = await client.files.create(file=("in.jsonl", "\n".join(lines).encode()), purpose="batch")
    batch = await client.batches.create(
        input_file_id=file.id, endpoint=CHAT, completion_window="24h", metadata={"for": "tests"}
    )
    assert (batch.status, batch.metadata) == ("validating", {"for": "tests"})
    until_s = time.monotonic() + BATCH_LIMIT_S
    while batch.status != "completed" and time.monotonic() < until_s:
        await asyncio.sleep(0.2)
        batch = await client.batches.retrieve(batch.id)
    assert batch.status == "completed"
    assert batch.request_counts is not None
    assert (batch.request_counts.completed, batch.request_counts.failed) == (4, 1)
    answered: dict[str, Any] = {}
    for file_id in (batch.output_file_id, batch.error_file_id):
        assert file_id is not None
        content = (await client.files.content(file_id)).text
        answered |= {one["custom_id"]: one for one in map(json.loads, content.splitlines())}
    assert sorted(answered) == names
    assert [answered[name]["response"]["status_code"] for name in names] == [200] * 4 + [400]
    assert batch.id in [one.id async for one in client.batches.list(limit=1)]
    with pytest.raises(openai.ConflictError):
        await client.batches.cancel(batch.id)


async def test_webhook_endpoints(client: AsyncOpenAI) -> None:
    types = await client.webhooks.event_types.list()
    assert "batch.completed" in types.data
    made = await client.webhooks.create(
        name="mine", url="https://127.0.0.1/hook", event_types=["batch.completed"]
    )
    assert (await client.webhooks.retrieve(made.id)).url == "https://127.0.0.1/hook"
    assert made.id in [one.id async for one in client.webhooks.list(limit=1)]
    secret = (await client.webhooks.rotate_secret(made.id)).signing_secret
    assert secret.startswith("whsec_")
    assert (await client.webhooks.delete(made.id)).deleted


def test_the_synchronous_client(sync: OpenAI) -> None:
    asked: dict[str, Any] = {
        "model": MODEL,
        "messages": HELLO,
        "max_tokens": 4,
        "temperature": 0,
    }
    whole = sync.chat.completions.create(**asked)
    pieces = [
        choice.delta.content or ""
        for chunk in sync.chat.completions.create(**asked, stream=True)
        for choice in chunk.choices
    ]
    assert "".join(pieces) == whole.choices[0].message.content
    raw = sync.models.with_raw_response.list()
    assert MODEL in [model.id for model in raw.parse().data]
    with sync.completions.with_streaming_response.create(
        model=MODEL, prompt="x", max_tokens=2
    ) as response:
        assert response.parse().object == "text_completion"
    file = sync.files.create(file=b"bytes without a name", purpose="user_data")
    assert sync.files.wait_for_processing(file.id, poll_interval=0.1).status == "processed"
    assert sync.files.delete(file.id).deleted
    with pytest.raises(openai.BadRequestError):
        sync.batches.create(input_file_id="file-x", endpoint=CHAT, completion_window="24h")


WEATHER: Final[dict[str, Any]] = {
    "type": "function",
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}
STREAMS: Final[dict[str, dict[str, Any]]] = {
    "text": {"input": "Say hello.", "max_output_tokens": 64},
    "cut": {"input": "Count to a hundred.", "max_output_tokens": 3},
    # One call: a small model that is forced goes on to list the same again.
    "call": {
        "input": "Paris?",
        "tools": [WEATHER],
        "tool_choice": "required",
        "parallel_tool_calls": False,
    },
    "chosen call": {"input": "fake:call=get_weather", "tools": [WEATHER], "max_output_tokens": 64},
    "failed": {"input": "fake:token_ms=20 fake:fail_after=2", "max_output_tokens": 64},
    "background": {"input": "Say hello.", "max_output_tokens": 8, "background": True},
}


@pytest.mark.parametrize("kind", STREAMS)
async def test_events_of_a_response_come_in_the_documented_order(
    client: AsyncOpenAI, kind: str
) -> None:
    order = json.loads(Path(os.environ["CONFORMANCE_ORDER"]).read_text())
    state, number = "start", 0
    stream = await client.responses.create(model=MODEL, stream=True, **STREAMS[kind])
    async for event in stream:
        assert event.sequence_number == number
        number += 1
        if event.type == "response.failed":
            assert state not in ("start", "over")
            state = "over"
            continue
        assert event.type in order[state], f"{event.type} in state {state}"
        state = order[state][event.type]
        if event.type == "response.output_item.added":
            state = event.item.type
    assert state == "over"
