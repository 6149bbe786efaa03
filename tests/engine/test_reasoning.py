"""A real engine's model thinks first: its template alone says so, and each API tells it apart."""

from __future__ import annotations

import json
import shutil
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
TOKENS = {"<reponame>": "<think>", "<file_sep>": "</think>"}


def thinking_tokenizer(folder: Path) -> Path:
    """The default model's with the marks of thoughts as tokens, in place of two it never uses."""
    target = folder / "tokenizer"
    target.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copyfile(TOKENIZER / name, target / name)
    text = (target / "tokenizer.json").read_text()
    for unused, mark in TOKENS.items():
        text = text.replace(json.dumps(unused), json.dumps(mark))
    tokenizer = json.loads(text)
    for added in tokenizer["added_tokens"]:
        added["special"] = added["special"] and added["content"] not in TOKENS.values()
    (target / "tokenizer.json").write_text(json.dumps(tokenizer))
    return target


@pytest.fixture(scope="module")
def engine(
    engine_python: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningEngine]:
    """Nothing is set: the template opens each answer with the mark by which SGLang knows it."""
    folder = tmp_path_factory.mktemp("thinks")
    script, model = Path(__file__).parents[1] / "fixtures" / "tiny_model.py", folder / "thinker"
    tokenizer = thinking_tokenizer(folder)
    says = f"{THOUGHT}</think>{ANSWER}"
    subprocess.run([engine_python, script, tokenizer, model, "2", "64", says], check=True)
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
