"""Outlines holds answers to a type, an expression, a choice and a grammar by `from_vllm`."""

from __future__ import annotations

import os
from typing import Any, Final, Literal

import openai
import outlines
import pytest
from pydantic import BaseModel

MODEL: Final = os.environ["CONFORMANCE_MODEL"]
CLIENT: Final[dict[str, Any]] = {
    "base_url": f"{os.environ['CONFORMANCE_URL']}/v1",
    "api_key": os.environ["CONFORMANCE_KEY"],
}


class City(BaseModel):
    name: str


HELD: Final = (
    ('{"name":"Paris"}', City),
    ("yes", Literal["yes", "no"]),
    ("12", outlines.types.Regex("[0-9]+")),
    ("yes", outlines.types.CFG('root ::= "yes" | "no"')),
)


@pytest.mark.parametrize(("answer", "form"), HELD)
def test_whole_and_streamed(answer: str, form: Any) -> None:
    model = outlines.from_vllm(openai.OpenAI(**CLIENT), MODEL)
    assert model(f"fake:text={answer}", form) == answer
    assert "".join(model.stream(f"fake:text={answer}", form)) == answer


async def test_async() -> None:
    model = outlines.from_vllm(openai.AsyncOpenAI(**CLIENT), MODEL)
    assert await model('fake:text={"name":"Paris"}', City) == '{"name":"Paris"}'
