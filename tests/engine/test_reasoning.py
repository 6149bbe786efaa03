"""A real engine's model thinks first: its template alone says so, and each API tells it apart."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engine.forked_engine import forked_engine
from tests.fixtures.engine import TOKENIZER, RunningEngine, tiny_settings
from tests.fixtures.online import Gateway

pytestmark = pytest.mark.thorough

THOUGHT, ANSWER = "Let me see", "Paris"


@pytest.fixture(scope="module")
def engine(
    engine_python: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningEngine]:
    """Nothing is set: the template opens each answer with the mark by which SGLang knows it."""
    folder = tmp_path_factory.mktemp("thinks")
    script, model = Path(__file__).parents[1] / "fixtures" / "tiny_model.py", folder / "thinker"
    says = f"{THOUGHT}</think>{ANSWER}"
    subprocess.run([engine_python, script, TOKENIZER, model, "2", "64", says], check=True)
    template = model / "chat_template.jinja"
    told = template.read_text().replace(
        "<|im_start|>assistant\n'", "<|im_start|>assistant\\n<think>\\n'"
    )
    assert "<think>" in told
    template.write_text(told)
    with forked_engine(tiny_settings(engine_python, model), folder) as running:
        yield running


@pytest.mark.timeout(600)
async def test_thoughts_come_apart_from_the_answer(gateway: Gateway) -> None:
    asked: dict[str, Any] = gateway.chat("Capital of France?", temperature=0, max_tokens=32)
    thought, answer = "", ""
    async with gateway.client() as openai:
        whole = (await openai.chat.completions.create(**asked)).choices[0].message
        async for chunk in await openai.chat.completions.create(**asked, stream=True):
            delta = chunk.choices[0].delta.model_dump()
            thought += delta.get("reasoning_content") or ""
            answer += delta["content"] or ""
        joined = await openai.chat.completions.create(
            **asked, extra_body={"separate_reasoning": False}
        )
        response = await openai.responses.create(
            model=gateway.model, input="Capital of France?", temperature=0, max_output_tokens=32
        )
    assert (thought.strip(), answer.strip()) == (THOUGHT, ANSWER)
    made = whole.model_dump()
    assert (made["reasoning_content"].strip(), made["content"].strip()) == (THOUGHT, ANSWER)
    assert f"{THOUGHT}</think>{ANSWER}" in (joined.choices[0].message.content or "")
    reasoning, message = (item.model_dump() for item in response.output)
    assert (reasoning["type"], reasoning["content"][0]["text"].strip()) == ("reasoning", THOUGHT)
    assert (message["type"], message["content"][0]["text"].strip()) == ("message", ANSWER)
