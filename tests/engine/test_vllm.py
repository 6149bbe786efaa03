"""A real vLLM behind the real client, gateway and dispatcher; what the fake one is held to, too."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from engine_adapter.client.base import CHAT_PATH, COMPLETIONS_PATH, EngineCall, RequestClass
from engine_adapter.client.engine_facts import VLLM
from engine_adapter.client.http import HttpEngineClient
from engine_adapter.client.rid import new_rid
from gateway.settings import GatewaySettings
from store.session import Database
from tests.fakes.client import FakeEngine, FakeSettings
from tests.fakes.server import serving
from tests.fixtures.batches import Bench, add_batch, read_batch
from tests.fixtures.online import running_gateway
from tests.fixtures.vllm import CONTEXT_TOKENS, MODEL, Vllm, running_vllm

REAL = pytest.param("real", marks=[pytest.mark.vllm, pytest.mark.thorough])


@pytest.fixture(scope="module")
def vllm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Vllm]:
    with running_vllm(tmp_path_factory.mktemp("vllm") / "log") as running:
        yield running


@pytest.fixture(params=["fake", REAL])
async def client(request: pytest.FixtureRequest) -> AsyncIterator[HttpEngineClient]:
    if request.param == "real":
        made = HttpEngineClient(request.getfixturevalue("vllm").url)
        yield made
        await made.close()
        return
    settings = FakeSettings(
        model=MODEL, server=VLLM, plugin=False, context_tokens=CONTEXT_TOKENS, token_s=0.01
    )
    async with serving(FakeEngine(settings)) as url:
        made = HttpEngineClient(url)
        yield made
        await made.close()


def chat(prompt: str, **more: Any) -> EngineCall:
    body = {"model": MODEL, "messages": [{"role": "user", "content": prompt}], **more}
    return EngineCall(CHAT_PATH, body, new_rid(), RequestClass.ONLINE, timeout_s=60)


async def until_idle(client: HttpEngineClient) -> None:
    async with asyncio.timeout(20):
        while (await client.facts()).queue != (0, 0):
            await asyncio.sleep(0.1)


async def test_what_it_says_of_itself(client: HttpEngineClient) -> None:
    facts = await client.facts()
    assert (facts.server, facts.level, facts.model) == (VLLM, 0, MODEL)
    assert facts.server_label == "vLLM 0.32.0"
    assert facts.context_tokens == CONTEXT_TOKENS
    assert not facts.embeds
    assert facts.queue == (0, 0)
    assert await client.healthy()


async def test_answers_with_every_field_that_is_passed(client: HttpEngineClient) -> None:
    reply = await client.call(
        chat("Say hello.", max_completion_tokens=4, top_k=5, min_p=0.1, seed=1, top_p=0,
             repetition_penalty=1.1, stop=["zzz"], logit_bias={"5": 1}, ignore_eos=True)
    )  # fmt: skip
    assert reply.ok, reply.body
    assert reply.usage is not None
    assert reply.usage.completion_tokens == 4
    body = {"model": MODEL, "prompt": "One two", "max_tokens": 3, "temperature": 0}
    whole = await client.call(EngineCall(COMPLETIONS_PATH, body, new_rid(), RequestClass.OFFLINE))
    assert whole.body["choices"][0]["text"]


async def test_a_stream_says_its_usage_in_every_chunk(client: HttpEngineClient) -> None:
    stream = await client.stream(chat("Count.", max_tokens=6, ignore_eos=True))
    events = [orjson.loads(event) async for frame in stream for event in frame.events]
    await stream.aclose()
    said = [one["usage"]["completion_tokens"] for one in events if one.get("usage")]
    assert said[-1] == 6
    assert len(said) > 3


async def test_what_is_too_long_is_refused_in_our_words(client: HttpEngineClient) -> None:
    reply = await client.call(chat("word " * 3000))
    assert (reply.status_code, reply.retryable) == (400, False)
    assert reply.body["error"]["code"] == "context_length_exceeded"
    assert str(CONTEXT_TOKENS) in reply.body["error"]["message"]


async def test_whoever_goes_away_frees_the_engine(client: HttpEngineClient) -> None:
    await client.facts()
    call = chat("Count to a thousand.", max_tokens=1500, ignore_eos=True)
    task = asyncio.ensure_future(client.call(call))
    async with asyncio.timeout(20):
        while (await client.facts()).queue != (0, 1):
            await asyncio.sleep(0.05)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await until_idle(client)
    stream = await client.stream(chat("Count.", max_tokens=1500, ignore_eos=True))
    async for _ in stream:
        break
    await stream.aclose()
    await until_idle(client)


@pytest.mark.vllm
@pytest.mark.thorough
async def test_a_schema_is_held_by_the_engine(vllm: Vllm) -> None:
    client = HttpEngineClient(vllm.url)
    schema = {
        "type": "object",
        "properties": {"ok": {"type": "boolean"}},
        "required": ["ok"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": True}}
    try:
        reply = await client.call(chat("Is it?", max_tokens=60, response_format=form))
        assert reply.ok, reply.body
        assert set(orjson.loads(reply.body["choices"][0]["message"]["content"])) == {"ok"}
        ruled = await client.call(chat("Say.", max_tokens=20, regex="(yes|no)"))
        assert ruled.body["choices"][0]["message"]["content"] in ("yes", "no")
    finally:
        await client.close()


@pytest.mark.vllm
@pytest.mark.thorough
@pytest.mark.timeout(900)
async def test_chat_beside_a_batch_and_a_kill(
    vllm: Vllm, database: Database, database_url: str, broker_url: str, tmp_path: Path
) -> None:
    bench = Bench(database)
    body = {"model": MODEL, "max_tokens": 24, "ignore_eos": True}
    lines = [
        orjson.dumps(
            {
                "custom_id": f"r{n}",
                "method": "POST",
                "url": CHAT_PATH,
                "body": {**body, "messages": [{"role": "user", "content": f"Tell of {n}."}]},
            }
        )
        for n in range(40)
    ]
    batch_id = await add_batch(database, bench.file_store, lines, model=MODEL)
    settings = GatewaySettings(
        database_url=database_url, broker_url=broker_url, engine_urls=vllm.url, home=tmp_path
    )
    client = HttpEngineClient(vllm.url)
    running = asyncio.ensure_future(bench.dispatch(client))
    try:
        async with running_gateway(database, settings, MODEL) as online, online.http() as http:
            for _ in range(3):
                answer = await http.post(
                    "/v1/chat/completions", json=online.chat("Hello.", max_tokens=8)
                )
                assert answer.status_code == 200, answer.text
            vllm.kill()
            refused = await http.post("/v1/chat/completions", json=online.chat("Hello."))
            assert refused.status_code == 503
            await asyncio.to_thread(vllm.start)
            async with asyncio.timeout(30):
                while not online.app.state.engines.members[0].up:
                    await asyncio.sleep(0.1)
            again = await http.post("/v1/chat/completions", json=online.chat("Hi.", max_tokens=8))
            assert again.status_code == 200, again.text
            async with asyncio.timeout(300):
                await running
    finally:
        running.cancel()
        await client.close()
    batch = await read_batch(database, batch_id)
    assert (batch.num_total, batch.num_failed) == (40, 0)
