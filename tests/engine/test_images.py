"""A real SGLang whose model reads images, behind the gateway: a tiny Qwen2-VL of random weights."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import orjson
import pytest

from engine_adapter.client.base import CHAT_PATH
from engine_adapter.client.http import HttpEngineClient
from engine_adapter.liveness import verify_engine
from store.session import Database
from tests.engine.forked_engine import forked_engine
from tests.fixtures.batches import Bench, add_batch, output_lines
from tests.fixtures.engine import START_LIMIT_S, TOKENIZER, RunningEngine, tiny_settings
from tests.fixtures.online import Gateway
from tests.fixtures.pictures import BLUE, RED, SIDE, UNDECODABLE, data_url, png

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(600)]


def asking(pixel: bytes | None) -> list[Any]:
    parts: list[Any] = [{"type": "text", "text": "What is it?"}]
    if pixel is not None:
        parts.insert(0, {"type": "image_url", "image_url": {"url": data_url(png(pixel))}})
    return [{"role": "user", "content": parts}]


@pytest.fixture(scope="module")
def engine(
    engine_python: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningEngine]:
    folder = tmp_path_factory.mktemp("images")
    script = Path(__file__).parents[1] / "fixtures" / "tiny_vision_model.py"
    model = folder / "tiny-random-qwen2-vl"
    subprocess.run([engine_python, script, TOKENIZER, model], check=True)
    with forked_engine(tiny_settings(engine_python, model), folder) as running:
        yield running


@pytest.mark.contract("C-11")
async def test_an_image_reaches_a_model_that_reads_it(
    gateway: Gateway, engine: RunningEngine
) -> None:
    facts = await verify_engine(engine.url, engine.model, START_LIMIT_S)
    assert facts.reads_images
    async with gateway.client() as client:

        async def ask(pixel: bytes | None) -> tuple[int, str]:
            made = await client.chat.completions.create(
                model=engine.model, messages=asking(pixel), temperature=0, max_tokens=24
            )
            assert made.usage is not None
            return made.usage.prompt_tokens, made.choices[0].message.content or ""

        none, red, blue = await ask(None), await ask(RED), await ask(BLUE)
        # Its own two marks, and one token for each 28 by 28 pixels.
        assert red[0] == blue[0] == none[0] + 2 + (SIDE // 28) ** 2
        assert red == await ask(RED), "the same image, the same answer"
        assert red[1] != blue[1], "the answer depends on the image"

        item: dict[str, Any] = {
            "role": "user",
            "content": [
                {"type": "input_image", "image_url": data_url(png(RED)), "detail": "auto"},
                {"type": "input_text", "text": "What is it?"},
            ],
        }
        given: Any = [item]
        response = await client.responses.create(
            model=engine.model, input=given, temperature=0, max_output_tokens=24
        )
        assert response.output_text == red[1]

        messages = asking(RED)
        messages[0]["content"][0]["image_url"]["url"] = UNDECODABLE
        item["content"][0]["image_url"] = UNDECODABLE
        for stream in (False, True):
            with pytest.raises(openai.BadRequestError) as refused:
                await client.chat.completions.create(
                    model=engine.model, messages=messages, stream=stream
                )
            assert refused.value.param == "messages[0].content[0].image_url"
        with pytest.raises(openai.BadRequestError) as refused:
            await client.responses.create(model=engine.model, input=given)
        assert refused.value.param == "input"
        assert (await ask(RED)) == red, "and the engine lives"


async def test_rows_of_a_batch_have_images(
    gateway: Gateway, engine: RunningEngine, database: Database
) -> None:
    """What a row is answered depends on its image as online, and a broken one fails alone."""

    def line(custom_id: str, messages: list[Any]) -> bytes:
        body = {"model": engine.model, "messages": messages, "temperature": 0, "max_tokens": 24}
        row = {"custom_id": custom_id, "method": "POST", "url": CHAT_PATH, "body": body}
        return orjson.dumps(row)

    broken = asking(RED)
    broken[0]["content"][0]["image_url"]["url"] = UNDECODABLE
    of = {"red": asking(RED), "blue": asking(BLUE), "broken": broken}
    bench = Bench(database)
    lines = [line(custom_id, messages) for custom_id, messages in of.items()]
    batch_id = await add_batch(database, bench.file_store, lines, model=engine.model)
    client = HttpEngineClient(engine.url)
    await bench.dispatch(client)
    await client.close()

    answered: dict[str, Any] = {}
    for succeeded in (True, False):
        for row in await output_lines(database, batch_id, succeeded=succeeded):
            answered[str(row["custom_id"])] = row["response"]
    statuses = {name: one["status_code"] for name, one in answered.items()}
    assert statuses == {"red": 200, "blue": 200, "broken": 400}
    assert answered["broken"]["body"]["error"]["param"] == "messages[0].content[0].image_url"
    async with gateway.client() as online:
        for name in ("red", "blue"):
            made = await online.chat.completions.create(
                model=engine.model, messages=of[name], temperature=0, max_tokens=24
            )
            said = answered[name]["body"]["choices"][0]["message"]["content"]
            assert said == made.choices[0].message.content
