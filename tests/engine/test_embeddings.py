"""A real SGLang that makes embeddings, behind the gateway: scheduling is SGLang's own."""

from __future__ import annotations

import math
from pathlib import Path

import openai
import pytest

from engine_adapter.liveness import verify_engine
from gateway.settings import GatewaySettings
from store.session import Database
from tests.engine.forked_engine import forked_engine
from tests.fixtures.engine import START_LIMIT_S, tiny_settings
from tests.fixtures.online import running_gateway

pytestmark = pytest.mark.thorough

POLICY_OFF = {"COSERVE_POLICY": "off"}


async def test_embeddings_of_a_real_engine(
    engine_python: Path,
    tiny_model: Path,
    tmp_path: Path,
    database: Database,
    database_url: str,
    broker_url: str,
) -> None:
    settings = tiny_settings(engine_python, tiny_model, "--is-embedding")
    with forked_engine(settings, tmp_path, **POLICY_OFF) as engine:
        facts = await verify_engine(engine.url, engine.model, START_LIMIT_S)
        assert facts.embeds
        gateway_settings = GatewaySettings(
            database_url=database_url, broker_url=broker_url, engine_urls=engine.url, home=tmp_path
        )
        async with (
            running_gateway(database, gateway_settings, engine.model) as gateway,
            gateway.client() as client,
        ):
            create = client.embeddings.create
            texts = ["Hello world", "Hello world", "Something else"]
            whole = await create(model=engine.model, input=texts)
            vectors = [one.embedding for one in whole.data]
            assert vectors[0] == pytest.approx(vectors[1], abs=1e-2)
            assert vectors[0] != pytest.approx(vectors[2], abs=1e-2)
            assert [math.hypot(*vector) for vector in vectors] == pytest.approx([1] * 3, 0.02)
            assert whole.usage.prompt_tokens > len(texts)

            tokens = await create(model=engine.model, input=[[5, 6, 7], [8]])
            assert tokens.usage.prompt_tokens == 4
            numbers = await create(model=engine.model, input=[8], encoding_format="float")
            assert numbers.data[0].embedding == pytest.approx(tokens.data[1].embedding, abs=1e-2)

            with pytest.raises(openai.BadRequestError) as shorter:
                await create(model=engine.model, input="x", dimensions=8)
            assert shorter.value.param == "dimensions"
            with pytest.raises(openai.BadRequestError) as too_long:
                await create(model=engine.model, input="word " * 20_000)
            assert too_long.value.code == "context_length_exceeded"

            # It would end this engine, so it must not arrive there.
            with pytest.raises(openai.BadRequestError) as no_text:
                await client.chat.completions.create(**gateway.chat("x"))
            assert no_text.value.code == "unsupported_model"
            assert (await create(model=engine.model, input="still there")).data
