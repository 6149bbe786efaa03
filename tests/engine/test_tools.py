"""Tools a real engine's model may choose from: what it begins by itself, the grammar finishes.

And tools beside a form of the answer: its first token decides between a call and the form.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine_adapter.client.http import HttpEngineClient
from tests.engine.forked_engine import forked_engine
from tests.fixtures.engine import (
    TOKENIZER,
    RunningEngine,
    tiny_settings,
)
from tests.fixtures.online import Gateway

pytestmark = pytest.mark.thorough

CITY = {
    "type": "object",
    "properties": {"city": {"type": "string", "enum": ["Paris"]}, "days": {"type": "boolean"}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
TOOLS: list[Any] = [
    {"type": "function", "function": {"name": "get_weather", "parameters": CITY}},
]
# Without a schema's help the arguments of an engine with a parser are the model's own.
STRICT: list[Any] = [{"type": "function", "function": {**TOOLS[0]["function"], "strict": True}}]
# A template that shows tools in the words by which Qwen 2.5 is known, before the tiny model's own.
QWEN_HEAD = """{%- if tools %}{{ '<|im_start|>system\n<tools>' }}
{%- for tool in tools %}{{ tool | tojson }}{% endfor %}
{{- '</tools> <tool_call> {"name": <function-name>}<|im_end|>\n' }}{% endif %}"""


def caller(engine_python: Path, folder: Path, says: str) -> Path:
    """A model that begins a call after each answer's first line break."""
    script = Path(__file__).parents[1] / "fixtures" / "tiny_model.py"
    target = folder / "caller"
    subprocess.run([engine_python, script, TOKENIZER, target, "2", "64", says], check=True)
    return target


@pytest.fixture(scope="module", params=["no parser", "qwen"])
def engine(
    request: pytest.FixtureRequest, engine_python: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningEngine]:
    """The model as it is, and with a template that has the parser chosen by itself."""
    folder = tmp_path_factory.mktemp("tools")
    model = caller(engine_python, folder, "I look. <tool_call>")
    if request.param == "qwen":
        template = model / "chat_template.jinja"
        template.write_text(QWEN_HEAD + template.read_text())
    with forked_engine(tiny_settings(engine_python, model), folder) as running:
        yield running


@pytest.mark.timeout(600)
@pytest.mark.contract("C-06", "C-21", "S-12")
async def test_the_model_chooses_a_call(
    gateway: Gateway, engine: RunningEngine, request: pytest.FixtureRequest
) -> None:
    client = HttpEngineClient(engine.url)
    parser = (await client.facts()).tool_call_parser
    await client.close()
    assert parser == ("qwen" if "qwen" in request.node.callspec.id else "")
    asked: dict[str, Any] = gateway.chat("Weather?", temperature=0, max_tokens=160, tools=STRICT)
    async with gateway.client() as openai:
        (whole,) = (await openai.chat.completions.create(**asked)).choices
        async with openai.chat.completions.stream(**asked) as stream:
            kinds = [event.type async for event in stream]
            (streamed,) = (await stream.get_final_completion()).choices
    assert "tool_calls.function.arguments.delta" in kinds
    for made in (whole, streamed):
        (call,) = made.message.tool_calls or []
        assert call.type == "function"
        assert call.function.name == "get_weather"
        assert json.loads(call.function.arguments)["city"] == "Paris"
        assert (made.message.content or "").strip() == "I look."
        assert made.finish_reason == "tool_calls"


ANSWER = {
    "type": "object",
    "properties": {"is_warm": {"type": "boolean"}},
    "required": ["is_warm"],
    "additionalProperties": False,
}
FORM = {"type": "json_schema", "json_schema": {"name": "answer", "schema": ANSWER}}


def first(word: str) -> dict[str, int]:
    """A bias by which an answer begins with a token where it may."""
    vocabulary = json.loads((TOKENIZER / "tokenizer.json").read_text())["model"]["vocab"]
    return {str(vocabulary[word]): 60}


@pytest.mark.timeout(600)
@pytest.mark.contract("C-20", "C-21", "S-12")
@pytest.mark.parametrize("choice", ["auto", "required"])
@pytest.mark.parametrize("word", ["{", "<"])
async def test_an_answer_is_a_call_or_has_its_form(
    gateway: Gateway, word: str, choice: Any
) -> None:
    calls = choice == "required" or word == "<"
    asked: dict[str, Any] = gateway.chat("Weather?", temperature=0, max_tokens=160)
    asked |= {"tools": STRICT, "tool_choice": choice, "parallel_tool_calls": False}
    asked |= {"logit_bias": first(word), "response_format": FORM}
    form: Any = {"type": "json_schema", "name": "answer", "schema": ANSWER}
    function: Any = {"type": "function", **STRICT[0]["function"]}
    async with gateway.client() as openai:
        (whole,) = (await openai.chat.completions.create(**asked)).choices
        streamed: dict[str, str] = {}
        async for chunk in await openai.chat.completions.create(**asked, stream=True):
            for part in chunk.choices:
                for call in part.delta.tool_calls or []:
                    name, more = (call.function.name or "", call.function.arguments or "")
                    streamed["call"] = streamed.get("call", "") + name + more
                streamed["text"] = streamed.get("text", "") + (part.delta.content or "")
        response = await openai.responses.create(
            model=gateway.model,
            input="Weather?",
            temperature=0,
            max_output_tokens=160,
            tools=[function],
            tool_choice=choice,
            parallel_tool_calls=False,
            text={"format": form},
            extra_body={"logit_bias": first(word)},
        )
    if not calls:
        assert whole.message.tool_calls is None
        assert type(json.loads(whole.message.content or "")["is_warm"]) is bool
        assert streamed == {"text": whole.message.content}
        assert json.loads(response.output_text) == json.loads(whole.message.content or "")
        assert whole.finish_reason == "stop"
        return
    (call,) = whole.message.tool_calls or []
    assert call.type == "function"
    assert json.loads(call.function.arguments)["city"] == "Paris"
    assert (whole.message.content or "") == streamed["text"] == ""
    assert streamed["call"] == "get_weather" + call.function.arguments
    assert whole.finish_reason == "tool_calls"
    (made,) = (one.model_dump() for one in response.output)
    assert (made["type"], made["name"]) == ("function_call", "get_weather")
