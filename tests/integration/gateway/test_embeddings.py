"""`/embeddings` and batches of them, over an engine that makes embeddings and one that does not."""

from __future__ import annotations

import asyncio
import base64
import struct
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openai
import orjson
import pytest

from batch.finish.finalize import finalize
from batch.intake.validate import validate
from engine_adapter.client.base import EMBEDDINGS_PATH
from engine_adapter.client.http import HttpEngineClient
from gateway.settings import GatewaySettings
from store.models import DEFAULT_PROJECT_ID
from store.repositories import usage as usages
from store.session import Database
from tests.fakes.client import FakeEngine, FakeSettings
from tests.fakes.server import serving
from tests.fixtures.batches import Bench
from tests.fixtures.online import Gateway, running_gateway

CHATTER, EMBEDDER = "fake-model", "org/fake-embedder"


@pytest.fixture
async def embedder() -> AsyncIterator[str]:
    async with serving(FakeEngine(FakeSettings(model=EMBEDDER, embeds=True))) as url:
        yield url


@pytest.fixture
async def gateway(
    database: Database, database_url: str, broker_url: str, tmp_path: Path, embedder: str
) -> AsyncIterator[Gateway]:
    async with serving(FakeEngine(FakeSettings(model=CHATTER))) as chatter:
        settings = GatewaySettings(
            database_url=database_url,
            broker_url=broker_url,
            engine_urls=f"{chatter},{embedder}",
            home=tmp_path,
        )
        async with running_gateway(database, settings, EMBEDDER) as running:
            async with asyncio.timeout(5):
                while len(running.app.state.engines.models()) < 2:
                    await asyncio.sleep(0.01)
            yield running


@pytest.mark.parametrize(
    ("given", "num"),
    [("one text", 1), (["a", "b c", "d"], 3), ([5, 6, 7], 1), ([[5], [6, 7]], 2)],
    ids=["text", "texts", "tokens", "token lists"],
)
async def test_the_official_client_reads_every_form(gateway: Gateway, given: Any, num: int) -> None:
    """It asks for base64 by itself and decodes it; numbers agree within float32."""
    async with gateway.client() as client:
        create = client.embeddings.create
        decoded = await create(model=EMBEDDER, input=given)
        numbers = await create(model=EMBEDDER, input=given, encoding_format="float")
        short = await create(model=EMBEDDER, input=given, dimensions=4)
    assert [one.index for one in decoded.data] == list(range(num))
    assert decoded.object == "list"
    assert (decoded.model, decoded.usage.total_tokens) == (EMBEDDER, decoded.usage.prompt_tokens)
    for one, other in zip(decoded.data, numbers.data, strict=True):
        assert one.embedding == pytest.approx(other.embedding, abs=1e-6)
        assert sum(part * part for part in other.embedding) == pytest.approx(1)
    assert {len(one.embedding) for one in short.data} == {4}


async def test_base64_on_the_bare_wire(gateway: Gateway) -> None:
    body = {"model": EMBEDDER, "input": "x"}
    async with gateway.http() as http:
        numbers = (await http.post("/embeddings", json=body)).json()["data"][0]["embedding"]
        more = {**body, "encoding_format": "base64"}
        encoded = (await http.post("/v1/embeddings", json=more)).json()["data"][0]["embedding"]
    assert struct.unpack("<32f", base64.b64decode(encoded)) == pytest.approx(numbers, abs=1e-6)


async def test_each_model_at_its_own_endpoint_only(gateway: Gateway) -> None:
    async with gateway.client() as client:
        with pytest.raises(openai.BadRequestError) as no_vectors:
            await client.embeddings.create(model=CHATTER, input="x")
        with pytest.raises(openai.BadRequestError) as no_text:
            await client.chat.completions.create(**gateway.chat("x"))
        with pytest.raises(openai.NotFoundError):
            await client.embeddings.create(model="org/none", input="x")
    for refused, reason in ((no_vectors, "does not serve embeddings"), (no_text, "makes embed")):
        assert (refused.value.code, refused.value.param) == ("unsupported_model", "model")
        assert reason in refused.value.message


@pytest.mark.parametrize(
    ("more", "status", "param"),
    [
        ({"input": ["x", ""]}, 400, "input[1]"),
        ({"input": "word " * 3000}, 400, "input"),
        ({"dimensions": 1000}, 400, "dimensions"),
        ({"input": "fake:status=503"}, 503, None),
    ],
    ids=str,
)
async def test_refusals(
    gateway: Gateway, more: dict[str, Any], status: int, param: str | None
) -> None:
    async with gateway.http() as http:
        reply = await http.post("/v1/embeddings", json={"model": EMBEDDER, "input": "x", **more})
    assert reply.status_code == status
    assert list(reply.json()["error"]) == ["message", "type", "param", "code"]
    assert reply.json()["error"]["param"] == param


async def test_tokens_are_counted(gateway: Gateway, database: Database) -> None:
    async with gateway.client() as client:
        await client.embeddings.create(model=EMBEDDER, input=["a b c", "d"])
    async with asyncio.timeout(5):
        while True:
            async with database.unit_of_work() as session:
                rows = await usages.list_for(session, DEFAULT_PROJECT_ID)
            if rows:
                break
            await asyncio.sleep(0.05)
    assert [(row.model, row.prompt_tokens, row.completion_tokens) for row in rows] == [
        (EMBEDDER, 4, 0)
    ]


def line(custom_id: str, given: Any, model: str = EMBEDDER) -> bytes:
    body = {"model": model, "input": given, "encoding_format": "base64"}
    return orjson.dumps(
        {"custom_id": custom_id, "method": "POST", "url": EMBEDDINGS_PATH, "body": body}
    )


async def create_batch(gateway: Gateway, lines: list[bytes]) -> str:
    async with gateway.client() as client:
        file = await client.files.create(file=("in.jsonl", b"\n".join(lines)), purpose="batch")
        batch = await client.batches.create(
            input_file_id=file.id, endpoint="/v1/embeddings", completion_window="24h"
        )
        return batch.id


@pytest.mark.contract("R-09")
async def test_a_batch_of_embeddings(gateway: Gateway, database: Database, embedder: str) -> None:
    given = {"one": "some text", "many": ["a", "b c"], "tokens": [1, 2, 3]}
    batch_id = await create_batch(gateway, [line(name, one) for name, one in given.items()])
    file_store = gateway.app.state.file_store
    await validate(database, file_store, batch_id)
    engine = HttpEngineClient(embedder)
    await Bench(database, file_store=file_store).dispatch(engine)
    await engine.close()
    await finalize(database, file_store, batch_id)
    async with gateway.client() as client, gateway.http() as http:
        batch = await client.batches.retrieve(batch_id)
        assert (batch.status, batch.error_file_id) == ("completed", None)
        assert batch.usage is not None
        assert (batch.usage.input_tokens, batch.usage.output_tokens) == (2 + 3 + 3, 0)
        assert batch.output_file_id is not None
        output = (await client.files.content(batch.output_file_id)).text
        answered = {one["custom_id"]: one for one in map(orjson.loads, output.splitlines())}
        for name, one in given.items():
            body = {"model": EMBEDDER, "input": one, "encoding_format": "base64"}
            online = (await http.post("/v1/embeddings", json=body)).json()
            assert answered[name]["response"]["body"] == online


@pytest.mark.contract("B-18", "E-13")
async def test_a_model_that_makes_text_fails_a_batch_of_embeddings(
    gateway: Gateway, database: Database
) -> None:
    batch_id = await create_batch(gateway, [line("a", "x", model=CHATTER)])
    async with asyncio.timeout(5):
        while not await _both_known(database):
            await asyncio.sleep(0.05)
    await validate(database, gateway.app.state.file_store, batch_id)
    async with gateway.client() as client:
        batch = await client.batches.retrieve(batch_id)
    assert batch.status == "failed"
    assert batch.errors is not None
    async with gateway.client() as client:
        with pytest.raises(openai.BadRequestError) as online:
            await client.embeddings.create(model=CHATTER, input="x")
    (fault,) = batch.errors.data or []
    assert fault.code == online.value.code == "unsupported_model"
    assert fault.message
    assert fault.message in online.value.message


async def _both_known(database: Database) -> bool:
    from store.repositories import engine as engines

    async with database.unit_of_work() as session:
        return len(await engines.list_all(session)) == 2
