"""Images before an engine whose model reads them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openai
import pytest

from gateway.settings import GatewaySettings
from store.session import Database
from tests.fakes.client import FakeEngine, FakeSettings
from tests.fakes.server import serving
from tests.fixtures.online import Gateway, running_gateway
from tests.fixtures.pictures import BROKEN, data_url, png

MODEL = "sees"
URL = data_url(png())


@pytest.fixture
async def seeing(
    database: Database, database_url: str, broker_url: str, tmp_path: Path
) -> AsyncIterator[tuple[Gateway, FakeEngine]]:
    engine = FakeEngine(FakeSettings(model=MODEL, reads_images=True))
    async with serving(engine) as engine_url:
        settings = GatewaySettings(
            database_url=database_url,
            broker_url=broker_url,
            engine_urls=engine_url,
            home=tmp_path,
        )
        async with running_gateway(database, settings, MODEL) as gateway:
            yield gateway, engine


@pytest.mark.contract("C-11", "P-03")
async def test_they_reach_the_engine_as_they_are(seeing: tuple[Gateway, FakeEngine]) -> None:
    gateway, engine = seeing
    shown = {"type": "image_url", "image_url": {"url": URL, "detail": "low"}}
    content: list[Any] = [{"type": "text", "text": "fake:text=a_cat"}, shown]
    async with gateway.client() as client:
        reply = await client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": content}]
        )
        assert reply.choices[0].message.content == "a cat"
        assert engine.received[-1]["messages"] == [{"role": "user", "content": content}]
        made = await client.responses.create(
            model=MODEL,
            input=[
                {
                    "role": "user",
                    "content": [
                        {"type": "input_text", "text": "fake:text=a_cat"},
                        {"type": "input_image", "image_url": URL, "detail": "low"},
                    ],
                }
            ],
        )
        assert made.output_text == "a cat"
        assert engine.received[-1]["messages"] == [{"role": "user", "content": content}]
        again = await client.responses.create(
            model=MODEL, input="fake:text=yes", previous_response_id=made.id
        )
    assert again.output_text == "yes"
    assert engine.received[-1]["messages"][0]["content"] == content


@pytest.mark.contract("C-11", "P-03")
@pytest.mark.parametrize("what", BROKEN)
async def test_broken_ones_are_named_and_reach_no_engine(
    seeing: tuple[Gateway, FakeEngine], what: str
) -> None:
    gateway, engine = seeing
    before = len(engine.received)
    chat: Any = [{"type": "image_url", "image_url": {"url": BROKEN[what]}}]
    given: Any = [{"type": "input_image", "image_url": BROKEN[what]}]
    async with gateway.client() as client:
        with pytest.raises(openai.BadRequestError) as refused:
            await client.chat.completions.create(
                model=MODEL, messages=[{"role": "user", "content": chat}]
            )
        assert refused.value.param == "messages[0].content[0].image_url.url"
        with pytest.raises(openai.BadRequestError) as refused:
            await client.responses.create(model=MODEL, input=[{"role": "user", "content": given}])
        assert refused.value.param == "input[0].content[0].image_url"
    assert len(engine.received) == before
