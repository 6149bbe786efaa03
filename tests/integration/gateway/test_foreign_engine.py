"""A gateway and a dispatcher before engines of level 0, above all those that are not ours."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from api.errors import EngineUnavailable
from engine_adapter.client.base import CHAT_PATH
from engine_adapter.client.engine_facts import OTHER, OURS, SGLANG, VLLM, remembered_facts
from engine_adapter.client.foreign_facts import ForeignTerms
from engine_adapter.client.http import HttpEngineClient
from gateway.settings import GatewaySettings
from store.repositories import chat_report, validation
from store.repositories.chat_report import ChatNow
from store.session import Database
from tests.fakes.client import FakeEngine, FakeSettings
from tests.fakes.server import serving
from tests.fixtures.batches import Bench, add_batch
from tests.fixtures.online import running_gateway
from tests.integration.gateway.conftest import MODEL, Online


@asynccontextmanager
async def before(
    server: str,
    database: Database,
    url: str,
    broker: str,
    home: Path,
    *,
    key: str = "",
    told_key: str = "",
    **more: Any,
) -> AsyncIterator[Online]:
    ours = server == OURS
    engine = FakeEngine(FakeSettings(model=MODEL, server=server, plugin=ours, key=key, **more))
    engine.report = {"coserving_level": 0} if ours else {}
    async with serving(engine) as engine_url:
        settings = GatewaySettings(
            database_url=url,
            broker_url=broker,
            engine_urls=engine_url,
            foreign_engines=engine_url if server == SGLANG else "",
            engine_keys=f"{engine_url}={told_key}" if told_key else "",
            home=home,
        )
        async with running_gateway(database, settings, MODEL) as gateway:
            yield Online(**vars(gateway), engine=engine)


@pytest.mark.parametrize("server", [VLLM, SGLANG, OTHER])
async def test_every_endpoint_of_text_at_any_server(
    server: str, database: Database, database_url: str, broker_url: str, tmp_path: Path
) -> None:
    async with (
        before(server, database, database_url, broker_url, tmp_path) as online,
        online.client() as client,
    ):
        listed = await client.models.list()
        (model,) = [one for one in listed.data if one.id == MODEL]
        extra = model.model_extra or {}
        assert extra["coserving_level"] == 0
        assert set(extra["coserving_reasons"]) == {"1", "2", "3"}
        chat = await client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": "fake:text=Paris_it_is"}]
        )
        assert chat.choices[0].message.content == "Paris it is"
        assert chat.usage is not None
        assert chat.usage.completion_tokens == 3
        stream = await client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": "fake:text=Paris_it_is"}],
            stream=True,
        )
        pieces = [piece.choices[0].delta.content async for piece in stream if piece.choices]
        assert "".join(filter(None, pieces)) == "Paris it is"
        whole = await client.completions.create(model=MODEL, prompt="fake:text=yes")
        assert whole.choices[0].text == "yes"
        made = await client.responses.create(model=MODEL, input="fake:text=said", store=False)
        assert made.output_text == "said"
        assert not online.engine.running


async def test_embeddings(
    database: Database, database_url: str, broker_url: str, tmp_path: Path
) -> None:
    async with before(VLLM, database, database_url, broker_url, tmp_path, embeds=True) as online:
        async with online.client() as client:
            made = await client.embeddings.create(model=MODEL, input=["a", "b"])
        assert len(made.data) == 2


async def test_a_field_that_the_engine_does_not_know_is_refused_by_name(
    database: Database, database_url: str, broker_url: str, tmp_path: Path
) -> None:
    async with (
        before(OTHER, database, database_url, broker_url, tmp_path) as online,
        online.http() as http,
    ):
        refused = await http.post("/v1/chat/completions", json=online.chat("a", top_k=3))
        assert refused.status_code == 400
        assert refused.json()["error"]["param"] == "top_k"


async def test_a_caller_that_goes_away_frees_the_engine(
    database: Database, database_url: str, broker_url: str, tmp_path: Path
) -> None:
    async with (
        before(VLLM, database, database_url, broker_url, tmp_path) as online,
        online.http() as http,
    ):
        body = online.chat("fake:token_ms=50 fake:tokens=500", stream=True)
        async with http.stream("POST", "/v1/chat/completions", json=body) as answer:
            async for _ in answer.aiter_lines():
                break
        await online.until_engine_is_free()
        with pytest.raises(httpx.ReadTimeout):
            await http.post(
                "/v1/chat/completions",
                json=online.chat("fake:token_ms=5000"),
                timeout=httpx.Timeout(0.3),
            )
        await online.until_engine_is_free()


async def test_an_engine_that_comes_back_is_used_again(
    database: Database, database_url: str, broker_url: str, tmp_path: Path
) -> None:
    async with (
        before(VLLM, database, database_url, broker_url, tmp_path) as online,
        online.client() as client,
    ):
        with pytest.raises(Exception, match=r"went away|cannot be reached"):
            await client.chat.completions.create(
                model=MODEL, messages=[{"role": "user", "content": "fake:die_after=2"}]
            )
        async with asyncio.timeout(10):
            while not online.app.state.engines.members[0].up:
                await asyncio.sleep(0.05)
        again = await client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": "fake:text=yes"}]
        )
        assert again.choices[0].message.content == "yes"


@pytest.mark.parametrize("server", [VLLM, OURS])
async def test_dispatchers_are_told_what_chat_gets_there(
    server: str, database: Database, database_url: str, broker_url: str, tmp_path: Path
) -> None:
    async with (
        before(server, database, database_url, broker_url, tmp_path) as online,
        online.http() as http,
    ):
        url = online.app.state.engines.members[0].url

        async def until(is_so: Callable[[ChatNow], bool]) -> None:
            async with asyncio.timeout(10):
                while True:
                    async with database.unit_of_work() as session:
                        if is_so(await chat_report.read(session, url)):
                            return
                    await asyncio.sleep(0.05)

        body = online.chat("fake:token_ms=300 fake:tokens=20", stream=True)
        async with http.stream("POST", "/v1/chat/completions", json=body) as answer:
            lines = answer.aiter_lines()
            await anext(lines)
            await until(lambda chat: chat.num_open == 1 and chat.pressure > 2)
        await until(lambda chat: chat == ChatNow())


async def test_a_server_that_wants_a_key(
    database: Database, database_url: str, broker_url: str, tmp_path: Path
) -> None:
    async with (
        before(
            VLLM, database, database_url, broker_url, tmp_path, key="sk-x", told_key="sk-x"
        ) as online,
        online.http() as http,
    ):
        answer = await http.post("/v1/chat/completions", json=online.chat("fake:text=yes"))
        assert answer.json()["choices"][0]["message"]["content"] == "yes"
        body = online.chat("fake:text=a_b", stream=True)
        streamed = await http.post("/v1/chat/completions", json=body)
        assert "data: [DONE]" in streamed.text


async def test_a_server_whose_key_is_missing_is_not_used_and_says_so(
    database: Database, database_url: str, broker_url: str, tmp_path: Path
) -> None:
    engine = FakeEngine(FakeSettings(model=MODEL, server=VLLM, plugin=False, key="sk-x"))
    async with serving(engine) as url:
        client = HttpEngineClient(url, ForeignTerms(keys={url: "sk-other"}))
        with pytest.raises(EngineUnavailable, match="COSERVE_ENGINE_KEYS"):
            await client.facts()
        await client.close()


@pytest.mark.parametrize("server", [VLLM, OTHER])
async def test_every_model_of_a_server_is_served_under_its_name(
    server: str, database: Database, database_url: str, broker_url: str, tmp_path: Path
) -> None:
    more = ("nickname", "lora-sql")
    async with (
        before(server, database, database_url, broker_url, tmp_path, more_models=more) as online,
        online.client() as client,
    ):
        listed = {one.id for one in (await client.models.list()).data}
        assert listed >= {MODEL, *more}
        for name in (MODEL, *more):
            made = await client.chat.completions.create(
                model=name, messages=[{"role": "user", "content": "fake:text=yes"}]
            )
            assert made.choices[0].message.content == "yes"
            assert online.engine.received[-1]["model"] == name
        async with database.unit_of_work() as session:
            served = await validation.served_models(session, "proj_default")
            sizes = await validation.model_sizes(session)
        assert served is not None
        assert all(served[name] for name in (MODEL, *more))
        assert set(sizes) >= {MODEL, *more}
    again = remembered_facts(MODEL, 10, {"more_models": {"a": 5, "b": "x"}})
    assert again.models == {MODEL: 10, "a": 5, "b": 0}


async def test_rows_of_any_of_its_models_are_run(database: Database) -> None:
    bench = Bench(database)
    settings = FakeSettings(
        model=MODEL, server=VLLM, plugin=False, more_models=("nickname", "lora-sql")
    )
    engine = FakeEngine(settings)
    made = {}
    for name in (MODEL, "lora-sql", "elsewhere"):
        body = {"model": name, "messages": [{"role": "user", "content": "fake:text=yes"}]}
        line = {"custom_id": "r", "method": "POST", "url": CHAT_PATH, "body": body}
        made[name] = await add_batch(database, bench.file_store, [orjson.dumps(line)], model=name)
    async with serving(engine) as url:
        client = HttpEngineClient(url)
        running = asyncio.ensure_future(bench.dispatch(client))
        async with asyncio.timeout(20):
            while len(engine.received) < 2:
                await asyncio.sleep(0.05)
        await asyncio.sleep(0.5)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await client.close()
    assert sorted(one["model"] for one in engine.received) == sorted([MODEL, "lora-sql"])
